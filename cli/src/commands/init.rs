//! `mdl init`: makes a repository.

use super::prelude::*;

/// Make a repository in a directory, beside the checkpoints that are there
///
/// The repository lives in DIR/.mdl, or with --storage in a bucket that many work trees and servers share: each has its
/// own HEAD. Files in DIR are left alone until the first commit. A repository that exists is left as it is, but for
/// --shared.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl init
  mdl init runs/llama -b train
  mdl init --bare /srv/models/llama.mdl
  mdl init --storage s3://team-models/llama")]
pub struct Args {
    /// Directory whose contents are versioned; made if it does not exist. Default: the current one.
    dir: Option<PathBuf>,
    /// Make a repository without a work tree, in DIR itself: for servers and shared stores.
    #[arg(long)]
    bare: bool,
    /// Keep the versions in a bucket: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. Commits go
    /// straight there.
    #[arg(long, value_name = "URL", conflicts_with = "bare")]
    storage: Option<String>,
    /// Name of the first branch [default: main]; of no effect where there is a repository already.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Let the directory's group write to the repository, whatever each user's umask; also to one that exists.
    #[arg(long, conflicts_with = "storage")]
    shared: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let named = args.dir.clone().or_else(|| context.global.repo.clone());
    let dir = named.unwrap_or_else(|| PathBuf::from("."));
    if dir.is_file() {
        return Err(refused(format!("{} is a file", dir.display()), "name a directory"));
    }
    let wanted = args.branch.as_deref().unwrap_or("main");
    let engine = context.engine()?;
    let (repo, made) = match &args.storage {
        Some(url) => mdl_remote::attach(&dir, url, wanted, &engine)?,
        None => Repo::init(&dir, args.bare, wanted, engine)?,
    };
    if let Some(dir) = repo.dir().filter(|_| args.shared) {
        mdl_repo::storage::share_with_group(dir)?;
    }
    let branch = present_branch(&repo)?;
    if let Some(name) = args.branch.as_ref().filter(|b| branch.as_ref() != Some(b)) {
        context.note(&format!(
            "warning: -b {name} has no effect: the repository exists. `mdl switch -c {name}` makes the branch"
        ));
    }
    if let Some(kind) = repo.dir().and_then(mdl_repo::storage::network_file_system) {
        context.note(&format!(
            "warning: this is on {kind}, where locks may not keep commands on other machines out: run `mdl gc` and \
             `mdl compact` only while nothing commits, or keep the versions in a bucket (`mdl init --storage`)"
        ));
    }
    let local = || repo.dir().unwrap_or(&dir).display().to_string();
    let place = args.storage.clone().unwrap_or_else(local);
    let document = json!({
        "repository": place,
        "work_tree": repo.work().map(|w| w.display().to_string()),
        "branch": branch,
        "created": made,
    });
    let what = if made { "Made an empty repository in" } else { "There is a repository already in" };
    context.confirm(&document, format!("{what} {place}"))
}
