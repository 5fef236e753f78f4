//! Options of `mdl serve`.

use crate::{
    auth::Scope,
    problem::{Problem, Result},
    process::state,
};
use ipnet::IpNet;
use mdl_repo::Protection;
use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// Why a directory cannot be served.
pub(crate) fn unserved(root: &Path) -> impl FnOnce(io::Error) -> Problem + use<'_> {
    move |e| match e.kind() {
        io::ErrorKind::NotFound => Problem::not_found("directory", root.display())
            .hint("make it first; repositories are the directories OWNER/NAME in it"),
        _ => Problem::usage(format!("cannot serve {}: {e}", root.display())),
    }
}

/// What anonymous callers may do with every repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing but read what is open to all.
    Nothing,
    /// As a token of this scope would allow.
    As(Scope),
}

impl Anonymous {
    /// As a scope.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Anonymous::Nothing => None,
            Anonymous::As(scope) => Some(scope),
        }
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
}

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The chain, the server's certificate first.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// Options of `mdl serve`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory with the repositories, as `OWNER/NAME`; or one repository.
    pub root: PathBuf,
    /// URL of a bucket with the repositories, as `OWNER/NAME`; then none of `root`'s are served.
    pub storage: Option<String>,
    /// Directory for the server's own things; none: `.mdl-serve` in `root`.
    pub state: Option<PathBuf>,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// For HTTPS.
    pub tls: Option<Tls>,
    /// What anonymous callers may do; none: see [`crate::auth`].
    pub anonymous: Option<Anonymous>,
    /// Bytes of memory for what is decoded and cached.
    pub memory: u64,
    /// Bytes of disk for decoded files, and as many for the disk buffer of slow clients; 0: neither is kept.
    pub cache: u64,
    /// Largest upload in bytes, and largest commit.
    pub max_upload: u64,
    /// Quota of one repository's incoming bytes: uploads, objects that no version holds, packs; none: twice
    /// `max_upload`.
    pub quota_repo: Option<u64>,
    /// Quota of one token's incoming bytes; callers without one are counted together; none: twice `max_upload`.
    pub quota_token: Option<u64>,
    /// Minimum rate of a request's body in bytes a second, once it was waited for as long as `stall_timeout`; 0: none.
    pub min_upload_rate: u64,
    /// How long an unused LFS object stays that no version holds; none: for ever.
    pub lfs_expiry: Option<Duration>,
    /// Connections at a time; more wait to be accepted.
    pub max_connections: usize,
    /// Connections of one address (of IPv6: of one /64 network); none: a quarter of all, and any number for this
    /// machine's own addresses.
    pub max_connections_per_address: Option<usize>,
    /// Umask of files that the server makes.
    pub umask: u32,
    /// Whether to restrict the process by the sandbox, if the kernel supports it.
    pub sandbox: bool,
    /// Devices that the engine uses, and directories that their drivers write to: open in the sandbox, too.
    pub device_paths: Vec<PathBuf>,
    /// Requests a second that one client may make on average; none: any number.
    pub rate: Option<u32>,
    /// How long a request's headers may take.
    pub header_timeout: Duration,
    /// How long a client may stall in the middle of a request or response.
    pub stall_timeout: Duration,
    /// Minimum download rate in bytes a second, where another client waits for the memory that the answer is produced
    /// in and the disk has no room for it; 0: none.
    pub min_download_rate: u64,
    /// How long requests may go on after the server was asked to stop.
    pub grace: Duration,
    /// Webhooks may go to addresses that are not public.
    pub private_webhooks: bool,
    /// Public URL of this server (`https://models.example.org`), for links in documents; none: the request's Host.
    pub public_url: Option<String>,
    /// Accepted host names, besides loopback names, the listen address and the public URL's.
    pub hosts: Vec<String>,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Invalid tokens allowed a minute and address; 0: any number.
    pub token_failures: u32,
    /// File of the audit log; none: `audit.jsonl` in the state directory.
    pub audit_log: Option<PathBuf>,
    /// Nothing in the repositories may change.
    pub read_only: bool,
    /// Rules of protected branches and tags, read before the sandbox shuts their files off.
    pub protect: Protection,
}

impl Options {
    /// Returns the state directory: the one that was named; else `.mdl-serve` in the served directory, or `serve` in
    /// the single served repository's.
    pub fn state_dir(&self) -> Result<PathBuf> {
        if let Some(dir) = &self.state {
            return Ok(dir.clone());
        }
        let root = self.root.canonicalize().map_err(unserved(&self.root))?;
        let inner = root.join(mdl_repo::DIR);
        Ok(if inner.is_dir() { inner.join("serve") } else { root.join(state::DIR) })
    }

    /// Whether browsers reach this server by HTTPS.
    pub fn is_secure(&self) -> bool {
        let public = self.public_url.as_deref().unwrap_or_default();
        self.tls.is_some() || public.get(..8).is_some_and(|s| s.eq_ignore_ascii_case("https://"))
    }

    /// The defaults, for a directory.
    pub fn new(root: impl Into<PathBuf>) -> Options {
        Options {
            root: root.into(),
            storage: None,
            state: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 7878)),
            tls: None,
            anonymous: None,
            memory: 1 << 30,
            cache: 16 << 30,
            max_upload: 1 << 40,
            quota_repo: None,
            quota_token: None,
            min_upload_rate: 1 << 10,
            lfs_expiry: Some(Duration::from_secs(30 * 24 * 3600)),
            max_connections: 1024,
            max_connections_per_address: None,
            umask: 0o077,
            sandbox: true,
            device_paths: Vec::new(),
            rate: None,
            header_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(60),
            min_download_rate: 64 << 10,
            grace: Duration::from_secs(30),
            private_webhooks: false,
            public_url: None,
            hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            token_failures: 60,
            audit_log: None,
            read_only: false,
            protect: Protection::default(),
        }
    }
}
