//! Settings: the repository's `config`, the user's own file, the environment.

use jiff::{Timestamp, tz::TimeZone};
use mdl_objects::Signature;
use mdl_store::{
    RepoError, Result,
    cache::CacheSize,
    refs::check_ref_name,
    storage::{Key, Storage, Swap, network_file_system, without_forks},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// The author where neither settings nor the environment name one.
pub const UNKNOWN: &str = "unknown";

/// The key that makes a storage a repository.
pub(crate) const FORMAT_KEY: Key = Key::fixed("format");
const KEY: Key = Key::fixed("config");
/// How much the cache of decoded tensors may hold.
pub(crate) const CACHE_SIZE: &str = "cache.size";
/// The table of other places.
const REMOTE: &str = "remote";

/// Settings that exist, with their type's example and what they mean.
pub const KNOWN: [(&str, &str, &str); 17] = [
    ("user.name", "", "author of commits and tags (MDL_AUTHOR_NAME overrides)"),
    ("user.email", "", "author's e-mail address (MDL_AUTHOR_EMAIL overrides)"),
    ("delta.max_depth", "16", "deltas between a tensor and one stored whole, 0 to 250; 0 stores every tensor whole"),
    (
        CACHE_SIZE,
        "10%",
        "decoded tensors that are kept beside the packs, as a part of the free disk or as 512MiB; 0 removes them all",
    ),
    ("gc.reflog_days", "90", "days a move stays in the reflog, and keeps its commits from gc"),
    (
        "gc.grace_hours",
        "24",
        "hours that unreachable objects are kept after they were written, and pruned versions after they were pruned",
    ),
    ("commit.follow_symlinks", "false", "commit what symbolic links point at instead of refusing them"),
    ("commit.on_full", "fail", "where the disk is full a commit or a shard fails, or waits for room: `fail` or `wait`"),
    ("pull.rebase", "false", "`mdl pull` puts this side's versions on top where both sides have new ones"),
    ("user.signingKey", "", "key that signs: the file of an SSH key, or key::ssh-ed25519 ... of one in an ssh-agent"),
    ("commit.provenance", "false", "say with every commit which code and environment it comes from"),
    ("commit.gpgSign", "false", "sign every commit"),
    ("tag.gpgSign", "false", "sign every tag, which makes it an annotated one"),
    ("gpg.format", "ssh", "kind of the signatures: ssh is the only one"),
    ("gpg.ssh.allowedSignersFile", "", "file that says whose signatures count: see `man ssh-keygen`, ALLOWED SIGNERS"),
    ("gpg.ssh.revocationFile", "", "file of public keys, one a line, whose signatures count no longer"),
    ("serve.anonymous_read", "false", "`mdl serve` lets callers without a token read this repository"),
];

/// Another place of the same history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where: a directory, a bucket, a server's repository. Never with credentials.
    pub url: String,
    /// Whether this repository holds only a part of what is there, and fetches the rest when it is asked for.
    pub partial: bool,
    /// Of a partial one: contents that are fetched, as patterns; empty for all.
    pub only: Vec<String>,
    /// Of a partial one: generations whose contents are fetched.
    pub depth: Option<u32>,
    /// The one branch that is fetched where none is named, and no tags; none for all.
    pub branch: Option<String>,
}

/// What storing a version does where the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It fails, and all is as it was.
    Fail,
    /// It waits for room, holding nothing, and begins again.
    Wait,
}

/// The settings in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    repo: Table,
    user: Table,
    /// What is wrong with the user's file, which is then done without.
    problem: Option<String>,
}

fn parse(what: &str, text: &str) -> Result<Table> {
    text.parse::<Table>().map_err(|e| {
        RepoError::user(
            format!("{what} is not valid TOML: {}", e.to_string().trim_end()),
            "repair it with a text editor",
        )
    })
}

fn table_of(bytes: &[u8]) -> Result<Table> {
    let text = std::str::from_utf8(bytes).map_err(|_| RepoError::corrupt("config", "not text"))?;
    parse("the repository's config", text)
}

fn section_of<'a>(settings: &'a mut Table, section: &str) -> Result<&'a mut Table> {
    let table = settings.entry(section).or_insert_with(|| Value::Table(Table::new()));
    table.as_table_mut().ok_or_else(|| RepoError::corrupt("config", format!("{section} is no table")))
}

/// The file with the user's own settings, wherever there is a home directory.
pub fn user_file() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".config")))?;
    Some(base.join("mdl").join("config.toml"))
}

/// As in git, names are the same in upper and lower case.
fn member<'a>(table: &'a Table, name: &str) -> Option<&'a Value> {
    table.get(name).or_else(|| table.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

fn lookup<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let (sections, name) = key.rsplit_once('.')?;
    let section = sections.split('.').try_fold(table, |table, section| member(table, section)?.as_table())?;
    member(section, name).filter(|value| !value.is_table())
}

/// The setting of this name, as it is written in [`KNOWN`].
fn known(key: &str) -> Result<&'static str> {
    KNOWN.iter().map(|k| k.0).find(|known| known.eq_ignore_ascii_case(key)).ok_or_else(|| unknown(key))
}

/// Names and values of a section and of the sections in it.
fn leaves(section: &str, table: &Table, out: &mut Vec<String>) {
    for (name, value) in table {
        let full = format!("{section}.{name}");
        match value.as_table() {
            Some(below) => leaves(&full, below, out),
            None => out.push(full),
        }
    }
}

impl Config {
    /// Reads the repository's settings and the user's.
    pub fn load(storage: &dyn Storage) -> Result<Config> {
        let repo = table_of(&storage.get(&KEY)?.unwrap_or_default())?;
        let found = user_file().and_then(|p| Some((std::fs::read_to_string(&p).ok()?, p)));
        let user = found.map(|(text, path)| parse(&path.display().to_string(), &text));
        let (user, problem) = match user.transpose() {
            Ok(table) => (table.unwrap_or_default(), None),
            // A mistake in a file outside the repository must not keep users from their versions.
            Err(e) => (Table::new(), Some(e.to_string())),
        };
        Ok(Config { repo, user, problem })
    }

    /// What is wrong with the user's own file, if it could not be read.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// A setting as text: the repository's, else the user's, else the default.
    pub fn get(&self, key: &str) -> Option<String> {
        let found = lookup(&self.repo, key).or_else(|| lookup(&self.user, key));
        let text = found.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
        let is_it = |k: &&(&str, &str, &str)| k.0.eq_ignore_ascii_case(key);
        let default = || KNOWN.iter().find(is_it).map(|k| k.1.to_owned()).filter(|v| !v.is_empty());
        text.or_else(default)
    }

    /// Settings made in the repository, as `section.name` and value.
    pub fn entries(&self) -> Vec<(String, String)> {
        let settings = self.repo.iter().filter(|(s, _)| *s != REMOTE);
        let mut all = Vec::new();
        settings.filter_map(|(s, v)| Some((s, v.as_table()?))).for_each(|(s, t)| leaves(s, t, &mut all));
        all.into_iter().filter_map(|k| self.get(&k).map(|v| (k, v))).collect()
    }

    /// Changes (or with `None` removes) a setting of the repository.
    ///
    /// # Errors
    /// An unknown key or a value of the wrong type; an I/O error.
    pub fn set(&mut self, storage: &dyn Storage, key: &str, value: Option<&str>) -> Result<()> {
        let key = known(key)?;
        check(key, value)?;
        let (sections, name) = key.rsplit_once('.').ok_or_else(|| unknown(key))?;
        self.change(storage, |settings| {
            let table = sections.split('.').try_fold(settings, section_of)?;
            match value {
                Some(text) => table.insert(name.to_owned(), typed(text)),
                None => table.remove(name),
            };
            Ok(())
        })
    }

    /// Changes the repository's settings as they are when the change is written: others change them too.
    fn change(&mut self, storage: &dyn Storage, f: impl Fn(&mut Table) -> Result<()>) -> Result<()> {
        let mut found = storage.get(&KEY)?;
        loop {
            let mut settings = table_of(found.as_deref().unwrap_or_default())?;
            f(&mut settings)?;
            match storage.swap(&KEY, found.as_deref(), Some(settings.to_string().as_bytes()))? {
                Swap::Done => {
                    self.repo = settings;
                    return Ok(());
                }
                Swap::Lost(other) => found = other,
            }
        }
    }

    /// Other places, by their names.
    pub fn remotes(&self) -> BTreeMap<String, Remote> {
        let table = self.repo.get(REMOTE).and_then(Value::as_table);
        let named = table.into_iter().flatten();
        named.filter_map(|(name, v)| Some((name.clone(), remote(v.as_table()?)?))).collect()
    }

    /// Whether this repository holds only a part of what another place has.
    pub fn is_partial(&self) -> bool {
        self.remotes().values().any(|r| r.partial)
    }

    /// Notes another place, or (where `f` gives none) forgets it. `f` is told what is noted of it when the change is
    /// written.
    ///
    /// # Errors
    /// A name that could be no part of a ref; what `f` says; an I/O error.
    pub fn change_remote(
        &mut self,
        storage: &dyn Storage,
        name: &str,
        f: &dyn Fn(Option<Remote>) -> Result<Option<Remote>>,
    ) -> Result<()> {
        check_ref_name(name)?;
        if name.contains('/') {
            let hint = "one word, such as origin";
            return Err(RepoError::user(format!("{name:?} is no name for a remote"), hint));
        }
        self.change(storage, |settings| {
            let table = section_of(settings, REMOTE)?;
            let noted = table.get(name).and_then(Value::as_table).and_then(remote);
            match f(noted)? {
                None => table.remove(name),
                Some(r) => table.insert(name.to_owned(), Value::Table(r.to_table())),
            };
            Ok(())
        })
    }

    fn number(&self, key: &str) -> u64 {
        // `set` checks; a hand-edited file that holds something else gets the default.
        let default = || KNOWN.iter().find(|k| k.0 == key).and_then(|k| k.1.parse().ok());
        self.get(key).and_then(|v| v.parse().ok()).or_else(default).unwrap_or(0)
    }

    /// Deltas between a tensor and one stored whole.
    pub fn max_depth(&self) -> u8 {
        self.number("delta.max_depth").min(250) as u8
    }

    /// How much the cache of decoded tensors of a repository in this directory may hold.
    pub fn cache_size(&self, dir: &Path) -> CacheSize {
        let is_set = lookup(&self.repo, CACHE_SIZE).or_else(|| lookup(&self.user, CACHE_SIZE)).is_some();
        if !is_set && network_file_system(dir).is_some() {
            // Every decoded byte would go over the network and back.
            return CacheSize::Bytes(0);
        }
        let value = self.get(CACHE_SIZE);
        value.and_then(|v| cache_size(&v)).unwrap_or(CacheSize::PercentOfFree(10))
    }

    /// Days that reflog entries live.
    pub fn reflog_days(&self) -> u64 {
        self.number("gc.reflog_days")
    }

    /// Hours that unreachable objects live.
    pub fn grace_hours(&self) -> u64 {
        self.number("gc.grace_hours")
    }

    /// Whether symbolic links are followed on commit.
    pub fn follow_symlinks(&self) -> bool {
        self.get("commit.follow_symlinks").as_deref() == Some("true")
    }

    /// Whether every commit says where it comes from.
    pub fn captures_provenance(&self) -> bool {
        self.get("commit.provenance").as_deref() == Some("true")
    }

    /// Whether a pull rebases without being asked to.
    pub fn pull_rebase(&self) -> bool {
        self.get("pull.rebase").as_deref() == Some("true")
    }

    /// Whether commits (or tags) are signed without being asked for.
    pub fn signs(&self, what: &str) -> bool {
        self.get(&format!("{what}.gpgSign")).as_deref() == Some("true")
    }

    /// What a commit does where the disk is full.
    pub fn on_full(&self) -> OnFull {
        match self.get("commit.on_full").as_deref() {
            Some("wait") => OnFull::Wait,
            _ => OnFull::Fail,
        }
    }

    /// The author, now: environment, then settings, then the system's user.
    pub fn signature(&self) -> Signature {
        let env = |key: &str| std::env::var(key).ok().filter(|v| !v.is_empty());
        let name = env("MDL_AUTHOR_NAME").or_else(|| self.get("user.name")).or_else(|| env("USER"));
        let email = env("MDL_AUTHOR_EMAIL").or_else(|| self.get("user.email")).unwrap_or_default();
        let now = Timestamp::now();
        // The zones are kept under locks of the whole process.
        let zone = without_forks(TimeZone::system);
        let offset = zone.to_offset(now).seconds() / 60;
        Signature {
            name: name.unwrap_or_else(|| UNKNOWN.to_owned()),
            email,
            time_ms: now.as_millisecond(),
            utc_offset_min: offset,
        }
    }

    /// The signature of a ref's move, with the time of now: moves are dropped from the reflog by their time, so no
    /// caller may choose it.
    pub fn moved_by(&self, who: Option<&Signature>) -> Signature {
        let own = self.signature();
        match who {
            None => own,
            Some(who) => Signature { name: who.name.clone(), email: who.email.clone(), ..own },
        }
    }
}

impl Remote {
    fn to_table(&self) -> Table {
        let mut out = Table::new();
        out.insert("url".to_owned(), Value::String(self.url.clone()));
        if self.partial {
            out.insert("partial".to_owned(), Value::Boolean(true));
        }
        if !self.only.is_empty() {
            let only = self.only.iter().cloned().map(Value::String).collect();
            out.insert("only".to_owned(), Value::Array(only));
        }
        if let Some(depth) = self.depth {
            out.insert("depth".to_owned(), Value::Integer(i64::from(depth)));
        }
        if let Some(branch) = &self.branch {
            out.insert("branch".to_owned(), Value::String(branch.clone()));
        }
        out
    }
}

fn remote(table: &Table) -> Option<Remote> {
    let only = table.get("only").and_then(Value::as_array);
    let depth = table.get("depth").and_then(Value::as_integer);
    let branch = table.get("branch").and_then(Value::as_str);
    Some(Remote {
        url: table.get("url")?.as_str()?.to_owned(),
        partial: table.get("partial").and_then(Value::as_bool).unwrap_or(false),
        only: only.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
        depth: depth.and_then(|d| u32::try_from(d).ok()),
        branch: branch.map(str::to_owned),
    })
}

/// `N%` of what is free, or bytes: `N`, `NKiB`, `NMiB`, `NGiB` or `NTiB`.
fn cache_size(text: &str) -> Option<CacheSize> {
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().ok().filter(|n| *n <= 100).map(CacheSize::PercentOfFree);
    }
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let with_unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = with_unit.unwrap_or((text, 0));
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift).map(CacheSize::Bytes)
}

fn typed(text: &str) -> Value {
    match (text.parse::<i64>(), text.parse::<bool>()) {
        (Ok(n), _) => Value::Integer(n),
        (_, Ok(b)) => Value::Boolean(b),
        _ => Value::String(text.to_owned()),
    }
}

fn unknown(key: &str) -> RepoError {
    let keys: Vec<&str> = KNOWN.iter().map(|k| k.0).collect();
    RepoError::usage(format!("there is no setting {key:?}"), format!("settings are {}", keys.join(", ")))
}

fn check(key: &str, value: Option<&str>) -> Result<()> {
    let (_, example, _) = KNOWN.iter().find(|k| k.0 == key).ok_or_else(|| unknown(key))?;
    let Some(value) = value else { return Ok(()) };
    let fits = match (example.parse::<u64>(), example.parse::<bool>()) {
        (Ok(_), _) => value.parse::<u64>().is_ok_and(|n| key != "delta.max_depth" || n <= 250),
        (_, Ok(_)) => value.parse::<bool>().is_ok(),
        _ if key == CACHE_SIZE => cache_size(value).is_some(),
        _ if key == "gpg.format" => value == "ssh",
        _ => key != "commit.on_full" || matches!(value, "fail" | "wait"),
    };
    if fits {
        return Ok(());
    }
    let wanted = match key {
        "delta.max_depth" => "a whole number from 0 to 250",
        CACHE_SIZE => "a part of the free disk, or a number of bytes",
        "gc.reflog_days" => "a number of days, 0 or more",
        "gc.grace_hours" => "a number of hours, 0 or more",
        "commit.on_full" => "fail or wait",
        "gpg.format" => "ssh",
        _ => "true or false",
    };
    Err(RepoError::usage(format!("{value:?} is no value for {key}"), format!("{wanted} is wanted, such as {example}")))
}

/// Whether the repository in a storage is partial. Settings that cannot be read say nothing of the kind.
pub(crate) fn is_partial(storage: &dyn Storage) -> bool {
    Config::load(storage).is_ok_and(|c| c.is_partial())
}
