//! Reads a git repository through git's own program: history, trees, blobs. Nothing is checked out or fetched, and no
//! command that the repository's settings name runs.

use super::{SourceVersion, bad, dated, titled};
use crate::commands::prelude::*;
use mdl_objects::Signature;
use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// What `git rev-parse --local-env-vars` lists: what a hook or `git rebase --exec` sets would name another repository.
const OTHERS: [&str; 16] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
];
/// Settings of a repository that would run something, or reach out.
const QUIET: [&str; 4] =
    ["core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "protocol.allow=never"];
/// Most bytes of a blob that is read into memory.
const TEXT: u64 = 64 << 20;

pub struct Git {
    dir: PathBuf,
    blobs: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

/// An entry of a tree that is a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeFile {
    pub path: String,
    pub executable: bool,
    pub oid: String,
    pub size: u64,
}

impl Drop for Git {
    fn drop(&mut self) {
        if let Some((mut child, input, _)) = self.blobs.take() {
            drop(input);
            let _ = child.wait();
        }
    }
}

impl Git {
    /// # Errors
    /// There is no git, or no repository.
    pub fn open(dir: &Path) -> Result<Git> {
        let git = Git { dir: dir.to_owned(), blobs: None };
        git.run(&["rev-parse", "--git-dir"])?;
        Ok(git)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        for name in OTHERS {
            command.env_remove(name);
        }
        command.arg("-C").arg(&self.dir).arg("--no-pager").args(QUIET.iter().flat_map(|setting| ["-c", setting]));
        // What a partial clone lacks would be fetched by a program of its choice. Older gits heed the protocols alone.
        command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none");
        command.args(args).env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
        command.stdin(Stdio::null());
        command
    }

    /// Standard output of a git command.
    pub fn run(&self, args: &[&str]) -> Result<Vec<u8>> {
        let done = self.command(args).output().map_err(RepoError::io("cannot run git"))?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        Err(refused(format!("git {}: {why}", args.join(" ")), "the source must be a git repository that git can read"))
    }

    pub fn line(&self, args: &[&str]) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.run(args)?).trim_end_matches('\n').to_owned())
    }

    /// The directory that all work trees share.
    pub fn common_dir(&self) -> Result<PathBuf> {
        Ok(self.dir.join(self.line(&["rev-parse", "--git-common-dir"])?))
    }

    /// A setting; none if it is not set.
    pub fn setting(&self, key: &str) -> Option<String> {
        self.line(&["config", "--get", key]).ok().filter(|v| !v.is_empty())
    }

    /// The history of a revision, oldest first: by first parents, so that a merge is one version.
    pub fn history(&self, revision: &str) -> Result<Vec<SourceVersion>> {
        if revision.starts_with('-') {
            return Err(CliError::usage(format!("{revision:?} is no revision"), ""));
        }
        let format = "--format=%H%x00%an%x00%ae%x00%ad%x00%B%x00%x01";
        let out = self.run(&["log", "--first-parent", "--reverse", "--date=raw", format, revision, "--"])?;
        let tags = self.tags()?;
        let mut versions = Vec::new();
        for record in String::from_utf8_lossy(&out).split("\0\u{1}\n").filter(|r| !r.is_empty()) {
            let fields: Vec<&str> = record.split('\0').collect();
            let [id, name, email, date, message, ..] = fields[..] else {
                return Err(bad("git's log makes no sense", "is it git's own program?"));
            };
            versions.push(SourceVersion {
                key: id.to_owned(),
                message: titled(message, id),
                author: signature(name, email, date),
                tags: tags.get(id).cloned().unwrap_or_default(),
                ..SourceVersion::default()
            });
        }
        Ok(versions)
    }

    /// Names of tags by the commit that they point at.
    fn tags(&self) -> Result<HashMap<String, Vec<String>>> {
        let format = "--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname:strip=2)";
        let out = self.run(&["for-each-ref", format, "refs/tags"])?;
        let mut tags: HashMap<String, Vec<String>> = HashMap::new();
        for line in String::from_utf8_lossy(&out).lines() {
            if let Some((id, name)) = line.split_once(' ') {
                tags.entry(id.to_owned()).or_default().push(name.to_owned());
            }
        }
        Ok(tags)
    }

    /// The files of a commit, and how many entries are links or other repositories.
    pub fn tree(&self, commit: &str) -> Result<(Vec<TreeFile>, u64)> {
        let out = self.run(&["ls-tree", "-r", "-z", "--long", "--full-tree", commit])?;
        let (mut files, mut others) = (Vec::new(), 0);
        for entry in out.split(|b| *b == 0).filter(|e| !e.is_empty()) {
            let entry = std::str::from_utf8(entry)
                .map_err(|_| bad(format!("a file of {commit} has a name that is not UTF-8"), "rename it"))?;
            let (facts, path) = entry.split_once('\t').unwrap_or_default();
            let facts: Vec<&str> = facts.split_whitespace().collect();
            match facts[..] {
                [mode @ ("100644" | "100755" | "100664"), "blob", oid, size] => files.push(TreeFile {
                    path: path.to_owned(),
                    executable: mode == "100755",
                    oid: oid.to_owned(),
                    size: size.parse().unwrap_or(0),
                }),
                _ => others += 1,
            }
        }
        Ok((files, others))
    }

    /// Reads a blob, whose bytes go to `take`; returns what that made of them.
    fn blob<T>(&mut self, oid: &str, take: impl FnOnce(u64, &mut dyn Read) -> io::Result<T>) -> Result<T> {
        let failed = || RepoError::io(format!("cannot read {oid} from git"));
        if self.blobs.is_none() {
            let mut command = self.command(&["cat-file", "--batch"]);
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(RepoError::io("cannot run git"))?;
            let (input, output) = (child.stdin.take(), child.stdout.take());
            self.blobs = input.zip(output).map(|(input, output)| (child, input, BufReader::new(output)));
        }
        let Some((_, input, output)) = &mut self.blobs else { return Err(bad("git has no output", "")) };
        let mut head = String::new();
        let asked = writeln!(input, "{oid}").and_then(|()| input.flush());
        asked.and_then(|()| output.read_line(&mut head)).map_err(failed())?;
        let size = head
            .trim_end()
            .rsplit_once(' ')
            .and_then(|(front, size)| front.ends_with(" blob").then(|| size.parse::<u64>().ok()).flatten());
        let Some(size) = size else {
            let hint = "a partial or shallow clone lacks what was not fetched: `git fetch --refetch`, or clone anew";
            return Err(bad(format!("git has no blob {oid}: {}", head.trim_end()), hint));
        };
        let mut limited = output.by_ref().take(size);
        let taken = take(size, &mut limited).map_err(failed())?;
        io::copy(&mut limited, &mut io::sink()).map_err(failed())?;
        output.read_exact(&mut [0]).map_err(failed())?;
        Ok(taken)
    }

    /// The bytes of a small blob.
    pub fn text(&mut self, oid: &str) -> Result<Vec<u8>> {
        self.blob(oid, |size, bytes| {
            let mut out = Vec::new();
            bytes.take(size.min(TEXT)).read_to_end(&mut out)?;
            Ok(out)
        })
    }

    /// Writes a blob to a file.
    pub fn write(&mut self, oid: &str, to: &Path) -> Result<()> {
        self.blob(oid, |_, bytes| io::copy(bytes, &mut File::create(to)?).map(|_| ()))
    }
}

/// `1700000000 +0100`
fn signature(name: &str, email: &str, date: &str) -> Option<Signature> {
    let (seconds, zone) = date.split_once(' ')?;
    let zone: i32 = zone.parse().ok()?;
    let (time_ms, utc_offset_min) =
        dated(seconds.parse::<i64>().ok()?.saturating_mul(1000), zone / 100 * 60 + zone % 100);
    Some(Signature {
        name: if name.is_empty() { mdl_repo::UNKNOWN.to_owned() } else { name.to_owned() },
        email: email.to_owned(),
        time_ms,
        utc_offset_min,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gits() {
        let made = signature("Ada", "ada@x", "1700000000 -0330").expect("a date");
        assert_eq!((made.time_ms, made.utc_offset_min), (1_700_000_000_000, -210));
        assert!(signature("Ada", "", "yesterday").is_none());
    }
}
