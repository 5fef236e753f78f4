//! Progress bars on standard error, for work that takes longer than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mdl_repo::Progress;
use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Shorter work shows no bar.
const HIDDEN_FOR: Duration = Duration::from_secs(1);
const BYTES: &str = "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
/// Work that is counted in something else than bytes.
const COUNTED: &str = "adding up objects";
const COUNT: &str = "{msg} {wide_bar} {human_pos}/{human_len}, {eta} left";
const UNKNOWN: &str = "{spinner} {msg}: {human_pos}";

/// Draws bars; nothing if standard error is no terminal.
#[derive(Debug)]
pub struct Bars {
    /// Whether what is waited for is said.
    talks: bool,
    visible: bool,
    /// Set when the user wants to leave; none: nothing is listened for.
    leaving: OnceLock<Arc<AtomicBool>>,
    /// Set when the work is to be given up; none: nothing is listened for.
    stopping: OnceLock<Arc<AtomicBool>>,
    current: Mutex<Option<ProgressBar>>,
}

impl Bars {
    /// Bars if wanted and standard error is a terminal; no words for a program (`json`).
    pub fn new(wanted: bool, json: bool) -> Bars {
        Bars {
            talks: wanted && !json,
            visible: wanted && io::stderr().is_terminal(),
            leaving: OnceLock::new(),
            stopping: OnceLock::new(),
            current: Mutex::default(),
        }
    }

    /// Waits no more, once this is set, for what can be done another time.
    pub fn leave_when(&self, leaving: Arc<AtomicBool>) {
        let _ = self.leaving.set(leaving);
    }

    /// Gives up the work once this is set.
    pub fn stop_when(&self, stopping: Arc<AtomicBool>) {
        let _ = self.stopping.set(stopping);
    }

    fn with(&self, f: impl FnOnce(&mut Option<ProgressBar>)) {
        if self.visible {
            f(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

fn style(what: &str, total: u64) -> ProgressStyle {
    let template = match total {
        0 => UNKNOWN,
        _ if what == COUNTED => COUNT,
        _ => BYTES,
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

impl Progress for Bars {
    fn begin(&self, what: &str, total: u64) {
        self.with(|current| {
            let bar = ProgressBar::with_draw_target((total > 0).then_some(total), ProgressDrawTarget::hidden());
            bar.set_style(style(what, total));
            bar.set_message(what.to_owned());
            *current = Some(bar);
        });
    }

    fn advance(&self, n: u64) {
        self.with(|current| {
            let Some(bar) = current else { return };
            bar.inc(n);
            if bar.is_hidden() && bar.elapsed() >= HIDDEN_FOR {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        });
    }

    fn waiting(&self, what: &str) {
        if self.talks {
            // There is nowhere to report that standard error is closed.
            let _ = writeln!(io::stderr(), "waiting for {what}");
        }
    }

    fn gives_up_waiting(&self) -> bool {
        self.leaving.get().is_some_and(|leaving| leaving.load(Ordering::Relaxed)) || self.stopped()
    }

    fn stopped(&self) -> bool {
        self.stopping.get().is_some_and(|stopping| stopping.load(Ordering::Relaxed))
    }

    fn end(&self) {
        self.with(|current| {
            if let Some(bar) = current.take() {
                bar.finish_and_clear();
            }
        });
    }
}
