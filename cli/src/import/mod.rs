//! Versions of another system, read from where that keeps them: one trait, an implementation for each system.

mod dvc;
mod folder;
mod git;
mod hub;
mod hub_cache;
mod ids;
mod lfs;
mod scratch;
mod wandb;

use crate::{checkpoints::SOURCE_TREE, commands::prelude::*};
use clap::ValueEnum;
use mdl_objects::Signature;
use mdl_repo::{CommitRequest, Committed, Content, NewFile};
pub use scratch::Scratch;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    rc::Rc,
};

/// Key of a commit's meta: where it was imported from, as `KIND ID`.
const IMPORTED: &str = "imported";
/// How deep directories are listed.
const DEPTH: usize = 32;

/// Systems that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A directory whose entries are the checkpoints of a run
    Folder,
    /// A git repository, with git-lfs or without
    GitLfs,
    /// A git repository whose data DVC keeps
    Dvc,
    /// A directory of a W&B artifact with its manifest, or several
    Wandb,
    /// A model on a Hugging Face Hub
    Hub,
    /// A model in the cache of huggingface_hub
    HubCache,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Folder => "folder",
            Kind::GitLfs => "git-lfs",
            Kind::Dvc => "dvc",
            Kind::Wandb => "wandb",
            Kind::Hub => "hub",
            Kind::HubCache => "hub-cache",
        }
    }

    /// What a place looks like; none: like nothing that is known.
    fn of_place(place: &str) -> Option<Kind> {
        let path = Path::new(place);
        if !path.exists() {
            let is_url = ["hf://", "https://", "http://"].iter().any(|scheme| place.starts_with(scheme));
            return (is_url || is_model(place)).then_some(Kind::Hub);
        }
        if path.join(".dvc").is_dir() {
            return Some(Kind::Dvc);
        }
        if path.join(".git").exists() || path.join("HEAD").is_file() && path.join("objects").is_dir() {
            return Some(Kind::GitLfs);
        }
        if path.join("snapshots").is_dir() && path.join("blobs").is_dir() {
            return Some(Kind::HubCache);
        }
        if wandb::has_artifacts(path) {
            return Some(Kind::Wandb);
        }
        path.is_dir().then_some(Kind::Folder)
    }
}

/// Whether something that is not here looks like a model's name: below a directory that is here it is a path.
fn is_model(place: &str) -> bool {
    let parts: Vec<&str> = place.split('/').collect();
    matches!(parts[..], [owner, name] if !name.is_empty() && !owner.is_empty() && !owner.starts_with('.')
        && !Path::new(owner).exists())
}

/// What to read, and what of it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The directory, URL or name.
    pub place: String,
    /// A branch, tag or commit of the source; none: what it has checked out, or its main branch.
    pub revision: Option<String>,
    /// Where the source's contents lie, if not in their usual place.
    pub cache: Option<PathBuf>,
    /// The Hub.
    pub endpoint: Option<String>,
    /// Where downloads and files out of git are kept meanwhile.
    pub scratch: Rc<Scratch>,
}

impl Request {
    /// Refuses what says nothing about a kind of source.
    fn check(&self, kind: Kind) -> Result<()> {
        let git = matches!(kind, Kind::GitLfs | Kind::Dvc);
        let given = [
            ("--revision", self.revision.is_some(), git || kind == Kind::Hub),
            ("--cache", self.cache.is_some(), git || kind == Kind::Wandb),
            ("--endpoint", self.endpoint.is_some(), kind == Kind::Hub),
        ];
        match given.into_iter().find(|(_, given, fits)| *given && !fits) {
            None => Ok(()),
            Some((option, ..)) => {
                let hint = "--from says what the source is, if it was taken for something else";
                Err(CliError::usage(format!("{option} is of no use for a source of the kind {}", kind.name()), hint))
            }
        }
    }
}

/// A version of the source.
#[derive(Clone, Debug, Default)]
pub struct SourceVersion {
    /// What the source calls it, unique there: a commit's id, a directory's name.
    pub key: String,
    pub message: String,
    pub author: Option<Signature>,
    pub step: Option<u64>,
    pub epoch: Option<f64>,
    pub metrics: BTreeMap<String, f64>,
    pub tags: Vec<String>,
}

/// A file of a version, on disk.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path in the version.
    pub rel: String,
    pub executable: bool,
    pub path: PathBuf,
    pub size: u64,
    /// The source's id of the bytes: what it keeps once.
    pub id: String,
    /// Whether they were checked against it: then a torn file is what the source has.
    pub verified: bool,
}

/// Something that has versions of files.
pub trait Source {
    /// Its versions, oldest first.
    fn versions(&mut self) -> Result<Vec<SourceVersion>>;

    /// The files of a version, each checked against the id that the source has for it, if there is one.
    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>>;

    /// Where a commit's meta says which version it was made of.
    fn mark(&self, version: &SourceVersion) -> (String, String);

    /// Whether a commit with a version's mark has what the version has now.
    fn is_same(&self, _repo: &Repo, _version: &SourceVersion, _tree: &Id) -> Result<bool> {
        Ok(true)
    }

    /// What was left out, in words.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// All files below a directory, links followed, each with its path in it.
fn files_below(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let (mut files, mut dirs) = (Vec::new(), vec![(dir.to_owned(), String::new(), DEPTH)]);
    while let Some((dir, front, depth)) = dirs.pop() {
        let failed = || RepoError::io(format!("cannot list {}", dir.display()));
        for entry in fs::read_dir(&dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(bad(format!("a file in {} has a name that is not UTF-8", dir.display()), ""));
            };
            match entry.path() {
                path if path.is_dir() && depth > 0 => dirs.push((path, format!("{front}{name}/"), depth - 1)),
                path => files.push((format!("{front}{name}"), path)),
            }
        }
    }
    Ok(files)
}

/// A time (ms since 1970) and a zone (minutes east of UTC) that every reader of dates knows: from year 1 to 9999, less
/// than a day from UTC. Anything else is moved to the nearest, or to UTC.
fn dated(time_ms: i64, utc_offset_min: i32) -> (i64, i32) {
    const DAY: i64 = 86_400_000;
    let (first, last) = (-62_135_596_800_000 + 2 * DAY, 253_402_300_799_000 - 2 * DAY);
    (time_ms.clamp(first, last), if utc_offset_min.abs() < 24 * 60 { utc_offset_min } else { 0 })
}

/// The beginning of a key, whatever it is made of.
fn short(key: &str) -> String {
    key.chars().take(10).collect()
}

/// A message, or for an empty one what the version is.
fn titled(message: &str, key: &str) -> String {
    match message.trim() {
        "" => format!("revision {}", short(key)),
        message => message.to_owned(),
    }
}

/// Opens a source, of the kind that was named or that it looks like.
pub fn open(kind: Option<Kind>, request: Request) -> Result<(Kind, Box<dyn Source>)> {
    let Some(kind) = kind.or_else(|| Kind::of_place(&request.place)) else {
        return Err(not_found(Missing::Directory, &request.place));
    };
    request.check(kind)?;
    let source: Box<dyn Source> = match kind {
        Kind::Folder => Box::new(folder::Folder::open(request)?),
        Kind::GitLfs => Box::new(lfs::LfsRepo::open(request)?),
        Kind::Dvc => Box::new(dvc::DvcRepo::open(request)?),
        Kind::Wandb => Box::new(wandb::Artifacts::open(request)?),
        Kind::Hub => Box::new(hub::HubSource::open(request)?),
        Kind::HubCache => Box::new(hub_cache::HubCache::open(request)?),
    };
    Ok((kind, source))
}

/// A version that was imported.
#[derive(Debug)]
pub struct Imported {
    pub key: String,
    pub done: Committed,
    pub step: Option<u64>,
    pub message: String,
}

/// What was imported.
#[derive(Debug, Default)]
pub struct Report {
    pub imported: Vec<Imported>,
    /// Versions that were there already.
    pub known: u64,
    /// Bytes of all files of the versions that were imported.
    pub logical_bytes: u64,
    /// Bytes of these, each content once: what the source keeps.
    pub source_bytes: u64,
    /// Bytes that they added to the repository.
    pub stored_bytes: u64,
    pub tags: Vec<String>,
    pub notes: Vec<String>,
}

/// Versions that a branch has, by their marks.
struct KnownMarks(HashMap<(String, String), Vec<(Id, Id)>>);

impl KnownMarks {
    fn read(repo: &Repo, branch: &str, keys: &BTreeSet<String>) -> Result<KnownMarks> {
        let tip = repo.refs().get(&RefName::branch(branch)?)?;
        let mut known: HashMap<_, Vec<_>> = HashMap::new();
        for step in mdl_repo::history(repo, tip.as_slice())? {
            let step = step?;
            for (key, value) in step.commit.meta.iter().filter(|(key, _)| keys.contains(*key)) {
                // Of a version that a watch took under a policy: the tree that its originals would have been.
                let originals = step.commit.meta.get(SOURCE_TREE).and_then(|tree| tree.parse().ok());
                let tree = originals.unwrap_or(step.commit.tree);
                known.entry((key.clone(), value.clone())).or_default().push((step.id, tree));
            }
        }
        Ok(KnownMarks(known))
    }

    fn find(&self, repo: &Repo, source: &dyn Source, version: &SourceVersion) -> Result<Option<Id>> {
        for (id, tree) in self.0.get(&source.mark(version)).into_iter().flatten() {
            if source.is_same(repo, version, tree)? {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }
}

/// Makes a commit of each version that a branch does not have, oldest first, and tells of each. What was imported
/// before a kill is on the branch, and not imported again.
pub fn run(
    context: &mut Context,
    repo: &Repo,
    source: &mut dyn Source,
    branch: &str,
    tell: &mut dyn FnMut(&mut Context, &Imported) -> Result<()>,
) -> Result<Report> {
    let versions = source.versions()?;
    let keys = versions.iter().map(|v| source.mark(v).0).collect();
    let known = KnownMarks::read(repo, branch, &keys)?;
    let (mut report, mut seen) = (Report::default(), BTreeSet::new());
    for version in versions {
        let found = known.find(repo, source, &version)?;
        let id = match found {
            Some(id) => {
                report.known += 1;
                id
            }
            None => {
                let files = source.files(&version)?;
                for file in &files {
                    report.logical_bytes += file.size;
                    report.source_bytes += if seen.insert(file.id.clone()) { file.size } else { 0 };
                }
                let done = mdl_repo::commit(repo, &request(source, &version, files, branch), &context.bars)?;
                report.stored_bytes += done.summary.stored_bytes;
                let (key, step, message) = (version.key.clone(), version.step, version.message.clone());
                let imported = Imported { key, done, step, message };
                tell(context, &imported)?;
                let id = imported.done.id;
                report.imported.push(imported);
                id
            }
        };
        for tag in &version.tags {
            let Ok(name) = RefName::tag(tag) else { continue };
            match repo.refs().get(&name)? {
                None => {
                    mdl_repo::create_tag(repo, tag, &id, None, false)?;
                    report.tags.push(tag.clone());
                }
                Some(at) if mdl_repo::peel(repo, &at)? == id => {}
                Some(_) => report.notes.push(format!("tag {tag} is another version's here already")),
            }
        }
    }
    report.notes.extend(source.notes());
    Ok(report)
}

fn request(source: &dyn Source, version: &SourceVersion, files: Vec<SourceFile>, branch: &str) -> CommitRequest {
    let allow_damaged = files.iter().all(|f| f.verified);
    let new = |f: SourceFile| NewFile { rel: f.rel, executable: f.executable, content: Content::Disk(f.path) };
    CommitRequest {
        files: Some(files.into_iter().map(new).collect()),
        message: version.message.clone(),
        branch: Some(branch.to_owned()),
        author: version.author.clone(),
        step: version.step,
        epoch: version.epoch,
        metrics: version.metrics.clone(),
        meta: [source.mark(version)].into(),
        // A version that equals the one before is one all the same.
        allow_empty: true,
        allow_damaged,
        ..CommitRequest::default()
    }
}

/// An error of the source's contents.
fn bad(what: impl Into<String>, hint: impl Into<String>) -> CliError {
    CliError::Own { kind: mdl_repo::ErrorKind::Corrupt, message: what.into(), hint: hint.into() }
}

/// The mark of versions that have ids of their own.
fn mark_of(kind: Kind, key: &str) -> (String, String) {
    (IMPORTED.to_owned(), format!("{} {key}", kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_no_reader_knows_are_moved() {
        assert_eq!(dated(1_700_000_000_000, 330), (1_700_000_000_000, 330));
        let shown = |(time, zone): (i64, i32)| {
            let at = jiff::Timestamp::from_millisecond(time).expect("a time");
            let zone = jiff::tz::Offset::from_seconds(zone * 60).expect("a zone");
            i32::from(zone.to_datetime(at).year())
        };
        assert_eq!(shown(dated(i64::MAX, 5999)), 9999);
        assert_eq!(shown(dated(i64::MIN, -5999)), 1);
        assert_eq!(shown(dated(i64::MIN, -24 * 60 + 1)), 1);
    }

    #[test]
    fn keys_of_any_letters_are_cut() {
        assert_eq!(titled(" ", "123456789é0"), "revision 123456789é");
        assert_eq!(titled(" said ", "x"), "said");
    }

    #[test]
    fn models_are_told_from_paths() {
        assert!(is_model("ada/gpt"));
        for place in ["src/gpt", "./gpt", "/ada/gpt", "ada", "ada/", "/ada", "a/b/c"] {
            assert!(!is_model(place), "{place}");
        }
    }
}
