//! The audit log: who changed what, who signed in, whose token was refused, in JSON lines without secrets.
//!
//! A request has its line once its outcome is known, before the answer is sent; a request whose client left has one
//! too. A line that cannot be written is a line in the server's log, and the request goes on.

use crate::{
    app::App,
    auth::{Caller, Scope, record::Record},
    listener::Peer,
    middleware::RequestId,
    problem::{Problem, Result},
    request::stamp::Stamp,
};
use axum::extract::{MatchedPath, Request};
use http::{Method, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Name of the file in the server's own directory.
pub const FILE: &str = "audit.jsonl";
/// Characters of a path that are kept.
const LONGEST_PATH: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// An authorised change, successful or not.
    Change,
    /// A caller with a token was not allowed.
    Refused,
    /// An invalid token was sent.
    TokenRefused,
    SignIn,
    SignOut,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Who {
    /// `token`, `session`, `link` or `anonymous`.
    kind: &'static str,
    id: Option<String>,
    name: Option<String>,
}

impl Who {
    pub(crate) fn from_caller(caller: &Caller) -> Who {
        Who {
            kind: match caller {
                Caller::Anonymous(_) | Caller::Misdirected => "anonymous",
                Caller::Bearer(_) => "token",
                Caller::Session(_) => "session",
            },
            id: caller.id().map(str::to_owned),
            name: caller.token().map(|t| t.name.clone()),
        }
    }

    /// A caller with a signed link that was made for a token.
    pub(crate) fn by_link(token: &str) -> Who {
        Who { kind: "link", id: Some(token.to_owned()), name: None }
    }

    /// A session whose token may be gone by now.
    pub(crate) fn of_session(token: &str) -> Who {
        Who { kind: "session", id: Some(token.to_owned()), name: None }
    }

    pub(crate) fn unknown() -> Who {
        Who::from_caller(&Caller::Anonymous(None))
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    request: Option<&'a str>,
    event: Event,
    caller: Who,
    peer: IpAddr,
    method: &'a str,
    /// The route as it is written in the program; none: there is no such route.
    route: Option<&'a str>,
    path: &'a str,
    right: Option<Scope>,
    repository: Option<String>,
    /// Status of the answer; none: the client left before there was one.
    status: Option<u16>,
}

#[derive(Debug)]
struct Open {
    file: File,
    stamp: Stamp,
    /// The last line is incomplete.
    torn: bool,
}

#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    open: Mutex<Open>,
}

fn open(path: &Path) -> io::Result<Open> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let stamp = Stamp::from_metadata(&file.metadata()?);
    Ok(Open { file, stamp, torn: false })
}

impl AuditLog {
    pub fn new(path: PathBuf) -> Result<AuditLog> {
        let open =
            open(&path).map_err(|e| Problem::usage(format!("cannot write the audit log {}: {e}", path.display())))?;
        Ok(AuditLog { path, open: Mutex::new(open) })
    }

    fn write(&self, line: &Line<'_>) {
        let mut bytes = Vec::with_capacity(512);
        let written = line
            .serialize(&mut Serializer::with_formatter(&mut bytes, Ascii))
            .map_err(io::Error::from)
            .and_then(|()| self.append(bytes));
        if let Err(error) = written {
            tracing::error!(path = %self.path.display(), %error, "the audit log cannot be written");
        }
    }

    /// Appends a line; reopens the path if the file was moved away (log rotation).
    fn append(&self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        let mut log = self.open.lock();
        if Stamp::from_path(&self.path)?.is_none_or(|there| !there.is_same_file(&log.stamp)) {
            *log = open(&self.path)?;
        }
        if log.torn {
            line.insert(0, b'\n');
        }
        let written = log.file.write(&line);
        log.torn = !matches!(written, Ok(n) if n == line.len());
        match written {
            Ok(n) if n < line.len() => Err(io::ErrorKind::WriteZero.into()),
            written => written.map(drop),
        }
    }
}

/// JSON formatter that escapes all but printable ASCII: JSON allows control characters that terminals obey.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            match c {
                ' '..='~' => writer.write_all(&[c as u8])?,
                c => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(writer, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Collects facts about a request; writes its audit line, if it gets one, on drop.
pub(crate) struct Entry {
    app: App,
    record: Record,
    caller: Option<Who>,
    request: Option<RequestId>,
    peer: IpAddr,
    method: Method,
    route: Option<MatchedPath>,
    path: String,
    status: Option<StatusCode>,
}

impl Entry {
    pub(crate) fn new(app: &App, request: &Request, record: Record) -> Entry {
        let extensions = request.extensions();
        Entry {
            app: app.clone(),
            record,
            caller: None,
            request: extensions.get::<RequestId>().cloned(),
            peer: extensions.get::<Peer>().copied().unwrap_or_default().0,
            method: request.method().clone(),
            route: extensions.get::<MatchedPath>().cloned(),
            path: request.uri().path().chars().take(LONGEST_PATH).collect(),
            status: None,
        }
    }

    pub(crate) fn set_caller(&mut self, caller: &Caller) {
        self.caller = Some(Who::from_caller(caller));
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    fn event(&self) -> Option<Event> {
        let right = self.record.right().map(|(scope, _)| scope);
        let refused = matches!(self.status, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN));
        let known = self.caller.as_ref().is_some_and(|who| who.id.is_some());
        match self.record.event() {
            Some(event) => Some(event),
            None if !self.method.is_safe() && right > Some(Scope::Read) => Some(Event::Change),
            None => (refused && known).then_some(Event::Refused),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(event) = self.event() else { return };
        let right = self.record.right();
        self.app.audit().write(&Line {
            time: Timestamp::now().to_string(),
            request: self.request.as_ref().map(RequestId::as_str),
            event,
            caller: self.record.who().or_else(|| self.caller.take()).unwrap_or_else(Who::unknown),
            peer: self.peer,
            method: self.method.as_str(),
            route: self.route.as_ref().map(MatchedPath::as_str),
            path: &self.path,
            right: right.as_ref().map(|(scope, _)| *scope),
            repository: right.map(|(_, name)| name.to_string()),
            status: self.status.map(|s| s.as_u16()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn line(name: &str) -> Line<'_> {
        Line {
            time: String::new(),
            request: None,
            event: Event::Change,
            caller: Who { kind: "token", id: Some("0123".to_owned()), name: Some(name.to_owned()) },
            peer: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            method: "POST",
            route: None,
            path: "/",
            right: Some(Scope::Write),
            repository: None,
            status: None,
        }
    }

    #[test]
    fn a_line_stays_a_line_whatever_a_name_holds() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(FILE);
        let log = AuditLog::new(path.clone()).expect("opened");
        let names = ["a\nb\r", "\u{1b}[2J", "\u{9b}2J\u{7f}\u{2028}", "\"},{\"", "g\u{1f680}"];
        names.iter().for_each(|name| log.write(&line(name)));
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)), "{text}");
        let read: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
        assert_eq!(read.iter().map(|l| l["caller"]["name"].as_str().expect("a name")).collect::<Vec<_>>(), names);
    }

    #[test]
    fn a_file_that_was_moved_away_or_removed_is_made_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, old) = (dir.path().join(FILE), dir.path().join("audit.jsonl.1"));
        let log = AuditLog::new(path.clone()).expect("opened");
        log.write(&line("first"));
        fs::rename(&path, &old).expect("moved");
        log.write(&line("second"));
        fs::remove_file(&path).expect("removed");
        log.write(&line("third"));
        let has = |path: &Path, name| fs::read_to_string(path).expect("read").contains(name);
        assert!(has(&old, "first") && !has(&old, "second") && has(&path, "third"));
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).expect("there").permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_log_that_cannot_be_written_takes_nothing_down() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("below").join(FILE);
        fs::create_dir(dir.path().join("below")).expect("made");
        let log = AuditLog::new(path).expect("opened");
        fs::remove_dir_all(dir.path().join("below")).expect("removed");
        log.write(&line("lost"));
        fs::create_dir(dir.path().join("below")).expect("made");
        log.write(&line("kept"));
        let text = fs::read_to_string(dir.path().join("below").join(FILE)).expect("read");
        assert!(text.contains("kept"));
        assert!(AuditLog::new(dir.path().join("absent").join(FILE)).is_err());
    }
}
