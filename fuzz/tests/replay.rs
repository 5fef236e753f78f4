//! Replays every target over its corpus, as it is and mutated by a seeded generator; the size of single allocations
//! stays bounded.
//!
//! `MDL_FUZZ_SEED` chooses another sequence, `MDL_FUZZ_SCALE` multiplies the number of mutated inputs.

#[path = "../../crates/files/tests/it/support/counting.rs"]
mod counting;

use mdl_fuzz::{
    TARGETS, Target,
    mutate::{Random, mutate},
};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// One input at a time, since the allocator counts for all.
static ALONE: Mutex<()> = Mutex::new(());
/// Allocated at once for any input of at most 64 KiB: a segment and its bases, tables, a server's buffers.
const MOST: usize = 64 << 20;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(otherwise)
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = fs::read_dir(&dir).expect("a corpus").flatten().map(|f| f.path());
    let mut files: Vec<_> = files.map(|p| (p.clone(), fs::read(&p).expect("a seed"))).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", dir.display());
    files
}

/// Runs an input; one that fails is kept, and its path is told.
fn run(target: &Target, input: &[u8], what: &str) {
    let (outcome, peak) = counting::peak_of(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    if outcome.is_ok() && peak <= MOST {
        return;
    }
    let kept = std::env::temp_dir().join(format!("mdl-fuzz-{}-{}", target.name, blake3::hash(input).to_hex()));
    fs::write(&kept, input).expect("a file for the input");
    eprintln!("{}: {what} fails, {peak} bytes at once; kept as {}", target.name, kept.display());
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    assert!(peak <= MOST, "{peak} bytes were allocated at once");
}

fn check(name: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let target = mdl_fuzz::target(name).expect("a target");
    let corpus = corpus(name);
    // What is made once and kept does not count for the first input.
    (target.run)(&corpus[0].1);
    for (path, input) in &corpus {
        run(target, input, &path.display().to_string());
    }
    let seed = number("MDL_FUZZ_SEED", 1);
    let mut random = Random::new(seed);
    for round in 0..u64::from(target.iterations) * number("MDL_FUZZ_SCALE", 1) {
        let mut input = corpus[random.below(corpus.len())].1.clone();
        let other = &corpus[random.below(corpus.len())].1;
        mutate(target, &mut input, other, &mut random);
        run(target, &input, &format!("round {round} of seed {seed}"));
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_target_is_tested() {
            let all: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            assert_eq!(all, [$(stringify!($name)),*]);
        }
    };
}

tests! {
    commit foreign gguf http_commit http_hub http_sync index ingest manifest npz pack pickle receive records safetensors
    segments tensor text torch tree xet_shard xet_xorb
}
