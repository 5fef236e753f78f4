//! `mdl completions`: scripts that complete verbs and options in a shell.

use super::prelude::*;
use crate::args::Cli;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a script that completes verbs and options
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl completions bash > ~/.local/share/bash-completion/completions/mdl
  mdl completions zsh > ~/.zfunc/_mdl
  mdl completions fish > ~/.config/fish/completions/mdl.fish")]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "mdl", &mut script);
    let text = String::from_utf8_lossy(&script);
    context.emit(&json!({"shell": args.shell.to_string(), "script": text}), &script)
}
