//! Random histories of all verbs, with programs that write in between and faults, against a model of what must come
//! back (docs/model-test.md). `MDL_MODEL_STEPS` says how many steps, else `MDL_TEST_SCALE` does; `MDL_MODEL_SEED` which
//! history alone, `MDL_MODEL_JOBS` how many run at once. A history that fails is made shorter by leaving steps out, and
//! printed.

mod check;
mod checkouts;
mod commits;
mod expect;
mod faults;
mod files;
mod generate;
mod judge;
mod names;
mod push;
mod real;
mod reference;
mod rig;
mod run;
mod steps;
mod storage;
mod takes;
mod tally;
mod transfers;
mod upkeep;
mod world;
mod writers;

use faults::Fault;
use generate::history;
use run::{Failure, run, setup_of};
use std::{
    env,
    str::FromStr,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use steps::{Collect, Source, Step, Trouble, Verb};
use tally::Tally;
use writers::{How, Write1};

/// Steps of all histories together: in a quick look, and with `MDL_TEST_SCALE=full`; and of each history.
const QUICK: u64 = 500;
const STEPS: u64 = 2000;
const LENGTH: usize = 250;
/// Seconds that a failing history is made shorter, unless `MDL_MODEL_SHRINK` says otherwise.
const SHRINKING: u64 = 60;
/// Findings after which no more histories begin.
const ENOUGH: usize = 5;

fn setting<T: FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

/// Leaves out steps, ever fewer at once, as long as the history fails all the same.
fn shrunk(seed: u64, steps: &[Step], failure: Failure) -> (Vec<Step>, Failure) {
    let (mut best, mut why, began) = (steps[..=failure.at].to_vec(), failure, Instant::now());
    let limit = Duration::from_secs(setting("MDL_MODEL_SHRINK").unwrap_or(SHRINKING));
    let mut chunk = best.len() / 2;
    while chunk > 0 && began.elapsed() < limit {
        let mut at = 0;
        while at < best.len() && began.elapsed() < limit {
            let end = (at + chunk).min(best.len());
            let fewer = [&best[..at], &best[end..]].concat();
            match run(seed, &fewer, setup_of(seed)).1 {
                Some(failure) => {
                    best = fewer[..=failure.at].to_vec();
                    why = failure;
                }
                None => at = end,
            }
        }
        chunk /= 2;
    }
    (best, why)
}

fn report(seed: u64, steps: &[Step], failure: Failure) -> String {
    let first = failure.what.clone();
    let (steps, failure) = shrunk(seed, steps, failure);
    let list: Vec<String> = steps.iter().map(|s| format!("  {s:?}\n")).collect();
    format!(
        "seed {seed} ({:?})\nfound: {first}\n{} steps are enough:\n{}found: {}\n",
        setup_of(seed),
        steps.len(),
        list.concat(),
        failure.what
    )
}

#[test]
fn whatever_is_done_and_goes_wrong_all_that_was_acknowledged_comes_back() {
    // The order of calls is to depend on the seed alone.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    let length = setting("MDL_MODEL_LENGTH").unwrap_or(LENGTH);
    let only: Option<u64> = setting("MDL_MODEL_SEED");
    let full = env::var("MDL_TEST_SCALE").is_ok_and(|scale| scale == "full");
    let steps = setting("MDL_MODEL_STEPS").unwrap_or(if full { STEPS } else { QUICK });
    let seeds = only.map_or(steps.div_ceil(length as u64), |_| 1);
    let first = only.or(setting("MDL_MODEL_FIRST")).unwrap_or(0);
    let (next, began) = (AtomicU64::new(first), Instant::now());
    let (sum, found) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..setting("MDL_MODEL_JOBS").unwrap_or(2) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    let enough = found.lock().is_ok_and(|found: MutexGuard<'_, Vec<String>>| found.len() >= ENOUGH);
                    if seed >= first + seeds || enough {
                        break;
                    }
                    let steps = history(seed, length, setup_of(seed).index && setup_of(seed).disk);
                    let (tally, failure) = run(seed, &steps, setup_of(seed));
                    if let Ok(mut sum) = sum.lock() {
                        sum.add(&tally);
                    }
                    if let Some(failure) = failure {
                        let text = report(seed, &steps, failure);
                        println!("{text}");
                        found.lock().map(|mut found| found.push(text)).unwrap_or_default();
                    }
                }
            });
        }
    });
    let (sum, found) = (sum.into_inner().unwrap_or_default(), found.into_inner().unwrap_or_default());
    println!("{seeds} histories, {:.0} s\n{sum:#?}", began.elapsed().as_secs_f64());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A reset that is cut after its files are written, and before the branch moves, leaves files of a version that nothing
/// names.
#[test]
fn files_of_a_version_that_a_collection_took_are_told_from_files_of_a_version_that_is_there() {
    let step = |verb, trouble| Step { place: 0, verb, trouble };
    let quiet = |verb| step(verb, Trouble::None);
    let write = |seed| Write1 { name: 0, how: How::Replace, seed };
    let commit = || Verb::Commit { source: Source::WorkTree, branch: None, label: true };
    for at in 1..20 {
        let cut = Trouble::Fault { fault: Fault::Kill, at, there: false };
        let mut steps: Vec<Step> = (0..3).flat_map(|n| [quiet(Verb::Write(write(n))), quiet(commit())]).collect();
        steps.push(quiet(Verb::Reset { version: 0, hard: true }));
        steps.push(step(Verb::Reset { version: 1, hard: true }, cut));
        steps.extend([quiet(Verb::Gc(Collect::Now)), quiet(commit()), quiet(Verb::Reset { version: 0, hard: false })]);
        steps.push(quiet(commit()));
        let found = run(2, &steps, setup_of(2)).1.map(|failure| failure.what);
        assert_eq!(found, None, "cut at change {at}");
    }
}
