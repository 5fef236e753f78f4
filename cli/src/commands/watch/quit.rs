//! Ends a watch at once, as a second signal asks: the work under way is given up, so that what it made so far goes too.

use crate::commands::prelude::*;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

/// How long the work may take to be given up. An evaluator, say, is not waited for longer.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// Whether a signal asked to end at once, and which.
#[derive(Clone, Debug, Default)]
pub struct Quit {
    signal: Arc<AtomicI32>,
    /// The same, as the work asks for it.
    pub flag: Arc<AtomicBool>,
}

impl Quit {
    /// Gives up the work, and ends the program by the signal once that is done, or after a moment. Asked once more it
    /// ends at once.
    pub fn ask(&self, signal: i32) {
        if self.signal.swap(signal, Ordering::Relaxed) != 0 {
            end(signal);
        }
        self.flag.store(true, Ordering::Relaxed);
        thread::spawn(move || {
            thread::sleep(WAIT_LIMIT);
            end(signal);
        });
    }

    /// Ends the program if that was asked for: here no work is under way.
    pub fn obey(&self) {
        match self.signal.load(Ordering::Relaxed) {
            0 => {}
            signal => end(signal),
        }
    }
}

/// As if the signal had no handler.
fn end(signal: i32) {
    if emulate_default_handler(signal).is_err() {
        std::process::exit(128 + signal);
    }
}

/// Listens for Ctrl-C and SIGTERM: the first one sets the flag, the second one asks to quit.
pub fn listen(quit: &Quit) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(RepoError::io("cannot listen for signals"))?;
    let (set, quit) = (stop.clone(), quit.clone());
    thread::spawn(move || {
        for signal in signals.forever() {
            if set.swap(true, Ordering::Relaxed) {
                quit.ask(signal);
            }
        }
    });
    Ok(stop)
}
