//! Tree and file pages: directories, the tensors of a checkpoint, the lines of a short text.

use crate::{hub, pages::prelude::*, request::today::explained};
use mdl_objects::{Kind, Manifest, TensorRef, Tree};
use mdl_repo::{StoredTensor, format_name};

/// Entries of a directory that are listed.
const ENTRIES: usize = 2000;
/// Tensors a page.
const PAGE: usize = 100;
const COLUMNS: [&str; 8] = ["Name", "Type", "Shape", "#Bytes", "#Stored", "#Ratio", "Scheme", "#Depth"];
/// Longest text that is shown.
const MAX_TEXT: u64 = 256 << 10;

#[derive(Debug, Default, Deserialize)]
pub struct Asked {
    #[serde(default)]
    start: usize,
    #[serde(default)]
    filter: String,
}

/// The commit and what is at a path in it.
fn walk(repo: &Repo, rev: &str, path: &str) -> Result<(Version, Entry)> {
    let version = Version::read(repo, revision::resolve(repo, rev)?)?;
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    if parts.is_empty() {
        let root = Entry { name: String::new(), mode: Mode::Tree, executable: false, size: 0, id: version.tree };
        return Ok((version, root));
    }
    let found = hub::find(repo.odb(), &version.tree, &parts.join("/")).map_err(|e| explained(repo, &version.id, e))?;
    Ok((version, found.ok_or_else(|| no_entry("file", path))?))
}

fn no_entry(what: &str, path: &str) -> Problem {
    Problem::not_found(what, text::name(path)).code("EntryNotFound")
}

/// `GET /{owner}/{name}/tree/{rev}` and `GET /{owner}/{name}/tree/{rev}/{*path}`
pub async fn directory(Read(access): Read, Path(at): Path<AtFile>) -> Result<Response> {
    let (rev, path) = (at.rev, at.path.trim_matches('/').to_owned());
    let (wanted, at) = (rev.clone(), path.clone());
    let listed = access.work(move |repo| {
        let (version, entry) = walk(repo, &wanted, &at)?;
        if entry.mode != Mode::Tree {
            return Err(no_entry("directory", &at));
        }
        let tree = repo.odb().tree(&entry.id).map_err(|e| explained(repo, &version.id, e))?;
        Ok((tree, Names::read(repo)?, About::read(repo, &version)?))
    });
    let (tree, names, about) = listed.await?;
    let name = &access.name;
    let content = html! {
        (title(name, &names, &rev, &path, &about))
        (table("Files", "wide", "Directories and files", &["Name", "Kind", "#Size", ""], &entries(name, &rev, &path, &tree)))
        @if tree.entries.len() > ENTRIES { p.muted { (text::grouped((tree.entries.len() - ENTRIES) as u64)) " more are not listed." } }
        @if tree.entries.is_empty() { p.muted { "This directory is empty." } }
    };
    let at = if path.is_empty() { "Files".to_owned() } else { text::name(&path) };
    Ok(page(&Frame::new(&at, name, Tab::Files, Some(&rev), &access.caller), &content))
}

/// Breadcrumbs of a file, each part a link.
fn title(name: &RepoName, names: &Names, rev: &str, path: &str, about: &About) -> Markup {
    let tree = format!("{}/tree/{}", base(name), text::segment(rev));
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let above = |n: usize| parts.iter().take(n + 1).map(|p| text::segment(p)).collect::<Vec<_>>().join("/");
    html! {
        div.title {
            h1.break {
                @if parts.is_empty() { "Files" } @else {
                    a href=(tree) { (name.name()) }
                    @for (i, part) in parts.iter().enumerate() {
                        span.sep { " / " }
                        @if i + 1 < parts.len() {
                            a href={ (tree) "/" (above(i)) } { (text::name(part)) }
                        } @else {
                            (text::name(part))
                        }
                    }
                }
                " " (about.label())
            }
            (refs::menu(names, rev, |r| format!("{}/tree/{}", base(name), text::segment(r))))
        }
        (about.sentence())
    }
}

fn entries(name: &RepoName, rev: &str, path: &str, tree: &Tree) -> Markup {
    let (base, rev) = (base(name), text::segment(rev));
    let prefix = if path.is_empty() { String::new() } else { format!("{}/", text::path(path)) };
    let mut all: Vec<&Entry> = tree.entries.iter().collect();
    all.sort_by_key(|e| e.mode != Mode::Tree);
    html! {
        @for e in all.into_iter().take(ENTRIES) {
            @let at = format!("{prefix}{}", text::segment(&e.name));
            @let place = if e.mode == Mode::Tree { "tree" } else { "blob" };
            tr {
                th.break scope="row" {
                    a href={ (base) "/" (place) "/" (rev) "/" (at) } {
                        (text::name(&e.name)) @if e.mode == Mode::Tree { "/" }
                    }
                }
                td.muted { @match e.mode { Mode::Tree => "directory", Mode::Manifest => "checkpoint", Mode::Blob => "file" } }
                td.num { (text::size(e.size)) }
                td { @if e.mode != Mode::Tree {
                    a href={ (base) "/resolve/" (rev) "/" (at) } aria-label={ "Download " (text::name(&e.name)) } download { "Download" }
                } }
            }
        }
    }
}

/// What is shown of a file.
enum Shown {
    Tensors(Tensors),
    Text(String),
    Bytes,
}

struct Tensors {
    format: &'static str,
    /// How it is stored is unknown where its record cannot be read.
    rows: Vec<(String, TensorRef, Option<StoredTensor>)>,
    views: Vec<(String, String)>,
    matching: usize,
    all: usize,
    next: Option<usize>,
}

/// Describes how one tensor is stored: read by itself, so that a damaged one does not hide the others.
fn stored(repo: &Repo, tensor: &TensorRef) -> Option<StoredTensor> {
    let alone = Manifest { format: 0, size: 0, skeleton: Vec::new(), tensors: vec![tensor.clone()], views: Vec::new() };
    mdl_repo::tensors_of(repo, &alone).ok()?.pop()
}

impl Tensors {
    fn gather(repo: &Repo, manifest: &Manifest, asked: &Asked) -> Tensors {
        let names = manifest.listed_names();
        let fits = |name: &String| name.contains(&asked.filter);
        let matching: Vec<_> = manifest.tensors.iter().zip(names).filter(|(_, n)| fits(n)).collect();
        let n = matching.len();
        let rows = matching.into_iter().skip(asked.start).take(PAGE);
        let rows = rows.map(|(tensor, name)| (name, tensor.clone(), stored(repo, tensor)));
        let views = manifest.views.iter().filter(|v| fits(&v.name)).take(PAGE);
        let view = |v: &mdl_objects::ViewRef| {
            let owner = manifest.tensors.get(v.tensor as usize).map_or("", |t| t.name.as_str());
            (v.name.clone(), owner.to_owned())
        };
        Tensors {
            format: format_name(manifest.format),
            rows: rows.collect(),
            views: views.map(view).collect(),
            matching: n,
            all: manifest.tensors.len(),
            next: after(asked.start, PAGE, n),
        }
    }
}

fn contents(repo: &Repo, entry: &Entry, asked: &Asked) -> Result<Shown> {
    match entry.mode {
        Mode::Manifest => {
            let manifest = repo.odb().manifest(&entry.id)?;
            if manifest.tensors.is_empty() && manifest.format == 0 {
                return Ok(Shown::Bytes);
            }
            Ok(Shown::Tensors(Tensors::gather(repo, &manifest, asked)))
        }
        Mode::Blob if entry.size <= MAX_TEXT => {
            let bytes = repo.odb().read(&entry.id, Kind::Blob)?;
            let text = String::from_utf8(bytes).ok().filter(|t| !t.contains('\0'));
            Ok(text.map_or(Shown::Bytes, Shown::Text))
        }
        _ => Ok(Shown::Bytes),
    }
}

/// `GET /{owner}/{name}/blob/{rev}/{*path}`
pub async fn file(Read(access): Read, Path(at): Path<AtFile>, Query(asked): Query<Asked>) -> Result<Response> {
    let AtFile { rev, path } = at;
    let (wanted, at) = (rev.clone(), path.clone());
    let gathered = access.work(move |repo| {
        let (version, entry) = walk(repo, &wanted, &at)?;
        if entry.mode == Mode::Tree {
            return Err(no_entry("file", &at));
        }
        let shown = contents(repo, &entry, &asked)?;
        Ok((entry, shown, (Names::read(repo)?, About::read(repo, &version)?), asked))
    });
    let (entry, shown, (names, about), asked) = gathered.await?;
    let name = &access.name;
    let (segment, parts) = (text::segment(&rev), text::path(&path));
    let here = format!("{}/blob/{segment}/{parts}", base(name));
    let content = html! {
        (title(name, &names, &rev, &path, &about))
        p.actions {
            a.button href={ (base(name)) "/resolve/" (segment) "/" (parts) } download { "Download" } " "
            span.muted {
                (text::size(entry.size)) @if entry.executable { " \u{b7} executable" } " \u{b7} at " code { (text::name(&shortened(&rev))) }
            }
        }
        @match &shown {
            Shown::Tensors(tensors) => (tensor_list(tensors, &here, &asked)),
            Shown::Text(text) => pre.text tabindex="0" role="region" aria-label="Text of the file" {
                (text::clipped(text, MAX_TEXT as usize))
            },
            Shown::Bytes => p.muted { "This file is not text, or too long to be shown." },
        }
    };
    let title = text::name(&entry.name);
    Ok(page(&Frame::new(&title, name, Tab::Files, Some(&rev), &access.caller), &content))
}

fn tensor_list(tensors: &Tensors, here: &str, asked: &Asked) -> Markup {
    let url = |start: usize| match asked.filter.as_str() {
        "" => format!("{here}?start={start}"),
        filter => format!("{here}?filter={}&start={start}", text::segment(filter)),
    };
    let (first, next) = ((asked.start > 0).then(|| url(0)), tensors.next.map(url));
    html! {
        section aria-labelledby="tensors" {
            h2 #tensors { "Tensors" }
            form.filter method="get" action=(here) role="search" {
                label for="filter" { "Name contains" }
                input #filter type="search" name="filter" value=(asked.filter) spellcheck="false" autocomplete="off";
                button type="submit" { "Filter" }
            }
            p.muted {
                (text::count(tensors.matching as u64, "tensor"))
                @if tensors.matching != tensors.all { " of " (text::grouped(tensors.all as u64)) }
                " \u{b7} " (tensors.format)
            }
            @if !tensors.rows.is_empty() {
                (table("Tensors", "wide", "Tensors of the file and how they are stored", &COLUMNS, &tensor_rows(&tensors.rows)))
            }
            (pager("Pages of tensors", first.as_deref(), next.as_deref()))
            @if !tensors.views.is_empty() {
                h3 { "Further names" }
                ul.names {
                    @for (view, owner) in &tensors.views {
                        li { code { (text::name(view)) } span.muted { " in " (text::name(owner)) } }
                    }
                }
            }
        }
    }
}

fn tensor_rows(rows: &[(String, TensorRef, Option<StoredTensor>)]) -> Markup {
    html! {
        @for (name, tensor, stored) in rows { tr {
            @let bytes = tensor.byte_len().unwrap_or(0);
            th.break scope="row" { code { (text::name(name)) } }
            td { (tensor.dtype.name()) }
            td { (text::shape(&tensor.shape)) }
            td.num { (text::size(bytes)) }
            @match stored {
                Some(stored) => {
                    td.num { (text::size(stored.stored_bytes)) }
                    td.num { (text::ratio(bytes, stored.stored_bytes)) }
                    td { code { (stored.scheme) } }
                    td.num { (stored.depth) }
                }
                None => td colspan="4" { span.bad { "cannot be read" } },
            }
        } }
    }
}
