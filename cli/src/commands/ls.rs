//! `mdl ls`: files and tensors of a version, without reading their contents.

use super::{prelude::*, shared::split_path};
use crate::render::{ratio, shape};
use mdl_objects::{Entry, Manifest};
use mdl_repo::Files;
use mdl_server::api::listing;

/// List the files of a version, or the tensors of a file
///
/// For tensors: element type, shape, bytes, stored bytes, how they are stored (`show --help` explains the schemes) and
/// the depth: how many differences are followed down to a tensor that is stored whole. A view shows its own shape;
/// where it goes by the name of the storage it lies in, that storage is listed as NAME#storage.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl ls
  mdl ls main~3 model.safetensors
  mdl ls --tensors v1
  mdl ls --json | jq '.files[].tensors[].name'")]
pub struct Args {
    /// Revision, or REV:PATH.
    #[arg(default_value = "HEAD", value_parser = crate::args::revision)]
    rev: String,
    /// Only this file (its tensors are listed) or the files below this directory.
    path: Option<String>,
    /// List the tensors of every file.
    #[arg(short, long)]
    tensors: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let (commit, path) = what(&repo, args)?;
    let files = mdl_repo::files(&repo, &commit)?;
    let one = path.as_deref().is_some_and(|p| files.contains_key(p));
    let files = select(files, path.as_deref())?;
    if context.global.json {
        let list = files.iter().map(|(p, e)| file_json(&repo, p, e)).collect::<Result<Vec<Value>>>()?;
        return context.json(&json!({"commit": commit.to_hex(), "files": list}));
    }
    if !args.tensors && !one {
        return list(context, &repo, &files);
    }
    for (n, (path, e)) in files.iter().enumerate() {
        if n > 0 {
            writeln!(context.out)?;
        }
        let manifest = listing::manifest(&repo, e)?;
        let facts = context.paint.dim(&format!("({}, {})", listing::format(manifest.as_ref()), size(e.size)));
        writeln!(context.out, "{}  {facts}", context.paint.bold(path))?;
        if let Some(manifest) = manifest {
            tensors(context, &repo, &manifest)?;
        }
    }
    Ok(())
}

/// The commit and path that are meant; a lone argument that is no revision may be a path of HEAD's.
fn what(repo: &Repo, args: &Args) -> Result<(Id, Option<String>)> {
    let (rev, inner) = split_path(&args.rev);
    let path = args.path.as_deref().or(inner).map(|p| p.trim_matches('/')).filter(|p| !p.is_empty() && *p != ".");
    match mdl_repo::resolve(repo, rev) {
        Ok(id) => Ok((id, path.map(str::to_owned))),
        Err(error) => {
            let head = repo.refs().head_commit()?.filter(|_| args.path.is_none() && inner.is_none());
            if let Some(id) = head {
                let name = rev.trim_end_matches('/');
                let files = mdl_repo::files(repo, &id)?;
                if select(files, Some(name)).is_ok() {
                    return Ok((id, Some(name.to_owned())));
                }
            }
            Err(error.into())
        }
    }
}

fn select(mut files: Files, path: Option<&str>) -> Result<Files> {
    if let Some(path) = path {
        let dir = format!("{path}/");
        files.retain(|p, _| p == path || p.starts_with(&dir));
        if files.is_empty() {
            return Err(not_found(Missing::File, path));
        }
    }
    Ok(files)
}

fn list(context: &mut Context, repo: &Repo, files: &Files) -> Result<()> {
    let mut table = Table::new(&[Align::Right, Align::Left, Align::Right, Align::Left]);
    for (path, e) in files {
        let manifest = listing::manifest(repo, e)?;
        let format = listing::format(manifest.as_ref());
        let tensors = manifest.map_or_else(|| "-".to_owned(), |m| m.tensors.len().to_string());
        let mark = if e.executable { "*" } else { "" };
        table.row([size(e.size), format.to_owned(), tensors, format!("{path}{mark}")]);
    }
    context.print(&table.lines(0))
}

fn tensors(context: &mut Context, repo: &Repo, manifest: &Manifest) -> Result<()> {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Left, Left, Right, Right, Right, Left, Right]);
    let heads = ["tensor", "dtype", "shape", "bytes", "stored", "ratio", "scheme", "depth"];
    table.row(heads.map(|h| context.paint.dim(h)));
    let names = manifest.listed_names();
    for s in mdl_repo::tensors_of(repo, manifest)? {
        let (bytes, stored) = (size(s.logical_bytes), size(s.stored_bytes));
        let ratio = ratio(s.logical_bytes, s.stored_bytes);
        let head = [visible(&s.name), s.dtype.to_owned(), shape(&s.shape), bytes, stored, ratio];
        table.row(head.into_iter().chain([s.scheme.to_owned(), s.depth.to_string()]));
    }
    for v in &manifest.views {
        let of = names.get(v.tensor as usize).map_or("?", String::as_str);
        let note = context.paint.dim(&visible(&format!("view of {of}")));
        table.row([visible(&v.name), v.dtype.to_string(), shape(&v.shape), note]);
    }
    context.print(&table.lines(2))
}

fn file_json(repo: &Repo, path: &str, e: &Entry) -> Result<Value> {
    let manifest = listing::manifest(repo, e)?;
    let (mut tensors, mut views) = (Vec::new(), Vec::new());
    if let Some(m) = &manifest {
        tensors = mdl_repo::tensors_of(repo, m)?;
        views = listing::views(m, 0..m.views.len());
    }
    let mut document = json!(listing::file(path, e, manifest.as_ref()));
    document["tensors"] = json!(tensors);
    document["views"] = json!(views);
    Ok(document)
}
