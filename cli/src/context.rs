//! Context of every command: global options, standard output, the repository.

use crate::{
    args::{Color, Global},
    engine::{choice, engine},
    errors::Result,
    progress::Bars,
    render::Paint,
};
use mdl_codec::Engine;
use mdl_repo::Repo;
use serde::Serialize;
use std::{
    env,
    fmt::Display,
    io::{self, BufWriter, IsTerminal, Stderr, Stdout, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Where a command's output goes: standard output, or standard error while that is another program's.
#[derive(Debug)]
pub enum Output {
    Out(Stdout),
    Err(Stderr),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Out(out) => out.write(bytes),
            Output::Err(err) => err.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Out(out) => out.flush(),
            Output::Err(err) => err.flush(),
        }
    }
}

/// Options and output of one run.
#[derive(Debug)]
pub struct Context {
    pub global: Global,
    pub out: BufWriter<Output>,
    pub paint: Paint,
    pub bars: Bars,
}

fn wants_color(choice: Color, terminal: bool) -> bool {
    match choice {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    }
}

impl Context {
    pub fn new(mut global: Global) -> Context {
        // Not clap's to read: a variable that is set to nothing counts as not set, an option does not.
        let named = || env::var_os("MDL_REPO").filter(|v| !v.is_empty());
        global.repo = global.repo.or_else(|| named().map(PathBuf::from));
        Context {
            paint: Paint::new(wants_color(global.color, io::stdout().is_terminal())),
            bars: Bars::new(!global.quiet, global.json),
            out: BufWriter::with_capacity(1 << 16, Output::Out(io::stdout())),
            global,
        }
    }

    /// Leaves standard output to another program: from now on our output goes to standard error.
    pub fn leave_standard_output(&mut self) -> Result<()> {
        self.finish()?;
        self.out = BufWriter::new(Output::Err(io::stderr()));
        self.paint = self.error_paint();
        Ok(())
    }

    pub fn error_paint(&self) -> Paint {
        Paint::new(wants_color(self.global.color, io::stderr().is_terminal()))
    }

    /// Returns the compression engine that options and environment choose.
    pub fn engine(&self) -> Result<Arc<dyn Engine>> {
        engine(choice(self.global.device)?)
    }

    /// Opens the repository that was named, or the one around the current directory.
    pub fn repo(&self) -> Result<Repo> {
        let engine = self.engine()?;
        let repo = match &self.global.repo {
            Some(path) => mdl_remote::open_at(path, &engine)?,
            None => mdl_remote::discover(Path::new("."), &engine)?,
        };
        if let Some(problem) = repo.config().problem() {
            self.note(&format!("warning: {problem}\nnote: settings of that file are not in force"));
        }
        Ok(repo)
    }

    /// Prints a JSON document: indented on a terminal, else on one line.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let written = match io::stdout().is_terminal() {
            true => serde_json::to_writer_pretty(&mut self.out, value),
            false => serde_json::to_writer(&mut self.out, value),
        };
        written.map_err(io::Error::from)?;
        Ok(writeln!(self.out)?)
    }

    /// Answers `--json` with a document, which is made only then: what was done must not fail for want of it. Returns
    /// whether text is wanted: with neither `--json` nor `--quiet`.
    pub fn wants_text<D: Serialize>(&mut self, document: impl FnOnce() -> Result<D>) -> Result<bool> {
        if self.global.json { self.json(&document()?).map(|()| false) } else { Ok(self.chatty()) }
    }

    /// Answers with bytes as they are (with none: silently), or with `--json` with a document.
    pub fn emit(&mut self, document: &impl Serialize, bytes: &[u8]) -> Result<()> {
        if self.global.json { self.json(document) } else { Ok(self.out.write_all(bytes)?) }
    }

    /// Confirms what was done, by a document with `--json`, else by a line.
    pub fn confirm(&mut self, document: &impl Serialize, line: impl Display) -> Result<()> {
        if self.wants_text(|| Ok(document))? { Ok(writeln!(self.out, "{line}")?) } else { Ok(()) }
    }

    pub fn print(&mut self, lines: &[String]) -> Result<()> {
        Ok(lines.iter().try_for_each(|l| writeln!(self.out, "{l}"))?)
    }

    /// Prints a note on standard error, unless `--quiet` or `--json` is given.
    pub fn note(&self, text: &str) {
        if !self.global.quiet && !self.global.json {
            // If standard error is closed there is nowhere to report it.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Returns whether to confirm what was done: not with `--quiet`.
    pub fn chatty(&self) -> bool {
        !self.global.quiet
    }

    pub fn finish(&mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}
