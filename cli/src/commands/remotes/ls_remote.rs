//! `mdl ls-remote`: lists the branches and tags of a remote.

use super::{elsewhere, is_url, named, peer};
use crate::commands::prelude::*;
use std::env;

/// List the branches and tags of another place
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl ls-remote\n  mdl ls-remote https://models.example.org/team/llama")]
pub struct Args {
    /// A remote's name, or a URL. Default: origin.
    #[arg(value_name = "REMOTE|URL")]
    place: Option<String>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let url = args.place.as_ref().filter(|p| is_url(p));
    let peer = match url {
        Some(url) => mdl_remote::open(url, context.engine()?, &env::temp_dir(), None).map_err(elsewhere(url))?,
        None => {
            let repo = context.repo()?;
            let (_, remote) = named(&repo, args.place.as_deref())?;
            peer(context, &repo, &remote, None)?
        }
    };
    let there = peer.refs().map_err(elsewhere(args.place.as_deref().unwrap_or("origin")))?;
    if context.global.json {
        let refs = there.refs.iter().map(|(name, id)| json!({"name": name, "id": id.to_hex()}));
        return context.json(&json!({"head": there.head, "refs": refs.collect::<Vec<_>>()}));
    }
    if let Some(id) = there.head.as_ref().and_then(|h| there.get(&format!("{HEADS}{h}"))) {
        writeln!(context.out, "{id}\tHEAD")?;
    }
    for (name, id) in &there.refs {
        writeln!(context.out, "{id}\t{name}")?;
    }
    Ok(())
}
