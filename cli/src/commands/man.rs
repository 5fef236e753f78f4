//! `mdl man`: manual pages.

use super::prelude::*;
use crate::args::Cli;
use clap::CommandFactory;
use clap_mangen::Man;
use std::{fs, io};

/// Print the manual page, or write one page a verb into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl man | man -l -\n  mdl man ~/.local/share/man/man1")]
pub struct Args {
    /// Directory for mdl.1, mdl-commit.1, ...; made if it does not exist.
    dir: Option<PathBuf>,
}

fn page(command: &clap::Command, title: &str) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    Man::new(command.clone()).title(title).render(&mut out)?;
    Ok(out)
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    // There are pages for verbs only; `mdl help VERB` shows what its page holds.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(dir) = &args.dir else {
        let text = page(&command, "mdl")?;
        return context.emit(&json!({"page": String::from_utf8_lossy(&text)}), &text);
    };
    let failed = |e| RepoError::io(format!("cannot write manual pages to {}", dir.display()))(e);
    fs::create_dir_all(dir).map_err(failed)?;
    let mut pages = vec![("mdl".to_owned(), &command)];
    pages.extend(command.get_subcommands().map(|c| (format!("mdl-{}", c.get_name()), c)));
    let mut written = Vec::new();
    for (title, command) in pages {
        let file = dir.join(format!("{title}.1"));
        fs::write(&file, page(command, &title)?).map_err(failed)?;
        written.push(file.display().to_string());
    }
    let line = format!("{} pages written to {}", written.len(), dir.display());
    context.confirm(&json!({"pages": written}), line)
}
