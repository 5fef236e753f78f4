//! The `mdl` command line program.

mod args;
mod checkpoints;
mod commands;
mod context;
mod engine;
mod errors;
mod import;
mod progress;
mod render;

use args::Cli;
use clap::Parser;
use context::Context;
use std::process::ExitCode;

fn main() -> ExitCode {
    quiet_index_panics();
    mdl_repo::storage::on_wait(|waiting| eprintln!("{waiting}"));
    let cli = match Cli::try_parse_from(args::as_git_takes_them(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return errors::usage(&error),
    };
    let mut context = Context::new(cli.global);
    let done = commands::run(&mut context, cli.verb).and_then(|()| context.finish());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => errors::report(&context, &error),
    }
}

/// Silences panics of the index, whose own threads may panic when its files are damaged: the repository then works
/// without it. Every other panic is reported as usual.
fn quiet_index_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|at| at.file().contains("sled")) {
            usual(info);
        }
    }));
}
