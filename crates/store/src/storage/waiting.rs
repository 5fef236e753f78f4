//! Waits for locks, and tells the user who holds them, as far as the system says.

use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

/// A shorter wait is not reported.
const MOMENT: Duration = Duration::from_secs(1);
/// Characters that are shown of a command.
const SHOWN: usize = 100;

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// Its command line, where the system tells.
    pub command: Option<String>,
}

/// A lock that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The lock's file.
    pub path: PathBuf,
    /// The processes that hold it; empty where the system does not tell: perhaps another machine.
    pub holders: Vec<Holder>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("waiting for ")?;
        for (i, holder) in self.holders.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}process {}", holder.process)?;
            if let Some(command) = &holder.command {
                write!(f, " ({command})")?;
            }
        }
        match self.holders.len() {
            0 => f.write_str("another process, perhaps of another machine, that has")?,
            1 => f.write_str(", which has")?,
            _ => f.write_str(", which have")?,
        }
        write!(f, " {}", self.path.display())
    }
}

type Teller = Box<dyn Fn(&Waiting) + Send + Sync>;

static TELLER: OnceLock<Teller> = OnceLock::new();

/// Reports waits for locks that last more than a second to `tell`, once each, for as long as this process runs. Only
/// the first call counts.
pub fn on_wait(tell: impl Fn(&Waiting) + Send + Sync + 'static) {
    let _ = TELLER.set(Box::new(tell));
}

/// Runs `wait`, and reports it if it lasts.
pub(super) fn report_wait(file: &File, path: &Path, wait: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(tell) = TELLER.get() else { return wait() };
    thread::scope(|scope| {
        let (done, waits) = mpsc::channel::<()>();
        let teller = move || {
            if waits.recv_timeout(MOMENT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let path = path.to_owned();
                let holders = holders(file).unwrap_or_default();
                tell(&Waiting { path, holders });
            }
        };
        // Without a thread to spare it waits in silence.
        let _ = thread::Builder::new().spawn_scoped(scope, teller);
        let waited = wait();
        drop(done);
        waited
    })
}

#[cfg(target_os = "linux")]
fn holders(file: &File) -> io::Result<Vec<Holder>> {
    let meta = file.metadata()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    Ok(parse(&fs::read_to_string("/proc/locks")?, &wanted))
}

#[cfg(not(target_os = "linux"))]
fn holders(_file: &File) -> io::Result<Vec<Holder>> {
    Ok(Vec::new())
}

/// Processes that have a lock of this file: `1: FLOCK  ADVISORY  WRITE 708 08:01:393239 0 EOF`; what waits has an
/// arrow.
fn parse(locks: &str, file: &str) -> Vec<Holder> {
    let mut found: Vec<u32> = Vec::new();
    for line in locks.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, "FLOCK", _, _, process, of, ..] = words[..]
            && of == file
        {
            found.extend(process.parse::<u32>().ok().filter(|p| *p > 0));
        }
    }
    found.dedup();
    let holder = |process| Holder { process, command: command(process) };
    found.into_iter().map(holder).collect()
}

fn command(process: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ");
    // Another program's words may hold anything.
    let shown: String = text.chars().take(SHOWN).collect();
    let shown = shown.escape_debug().to_string();
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_hold_a_lock_are_named_and_those_who_wait_are_not() {
        let locks = "1: FLOCK  ADVISORY  READ 4294967294 08:01:7 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 4294967293 08:01:7 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 4294967292 08:01:7 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4294967291 08:01:8 0 EOF\n\
                     4: FLOCK  ADVISORY  READ -1 08:01:7 0 EOF\nnonsense\n";
        let numbers: Vec<u32> = parse(locks, "08:01:7").iter().map(|h| h.process).collect();
        assert_eq!(numbers, [4_294_967_294]);
    }

    #[test]
    fn a_wait_is_told_in_one_sentence() {
        let holder = |process| Holder { process, command: (process == 7).then(|| "mdl gc".to_owned()) };
        let waiting = |holders| Waiting { path: "x/gc.lock".into(), holders };
        let one = waiting(vec![holder(7)]).to_string();
        assert_eq!(one, "waiting for process 7 (mdl gc), which has x/gc.lock");
        let two = waiting(vec![holder(7), holder(8)]).to_string();
        assert_eq!(two, "waiting for process 7 (mdl gc), process 8, which have x/gc.lock");
        assert!(waiting(Vec::new()).to_string().contains("another process"));
    }
}
