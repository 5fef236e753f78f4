//! Makes the steps of a history from a seed.

use crate::model::{
    faults::Fault,
    files::{NAMES, Rng},
    steps::{BRANCHES, Collect, Source, Step, Trouble, Verb},
    writers::{How, Write1},
};

fn write(rng: &mut Rng) -> Write1 {
    let how = match rng.below(100) {
        0..18 => How::Replace,
        18..34 => How::Overwrite,
        34..60 => How::Train,
        60..67 => How::Append,
        67..80 => How::Map,
        80..88 => How::Remove,
        88..93 => How::ToggleExec,
        _ => How::Copy,
    };
    // Names that are in each other's way are rare.
    let names = if rng.chance(6) { NAMES.len() } else { NAMES.len() - 2 };
    Write1 { name: rng.below(names as u64) as usize, how, seed: rng.next() >> 1 }
}

fn trouble(rng: &mut Rng) -> Trouble {
    // Of files with many tensors half of a write may be read.
    let names = if rng.chance(50) { 3 } else { NAMES.len() as u64 - 2 };
    // Early calls are reached by all verbs, late ones by few.
    let bits = rng.below(8);
    let at = 1 + rng.below(1 << bits);
    match rng.below(100) {
        0..70 => Trouble::None,
        70..84 => {
            let all = [Fault::Fail, Fault::FailRead, Fault::LoseReply, Fault::Full, Fault::Kill, Fault::Tear];
            let fault = all[rng.below(6) as usize];
            Trouble::Fault {
                fault,
                at: if matches!(fault, Fault::Fail | Fault::FailRead) { at } else { 1 + at / 4 },
                there: rng.chance(40),
            }
        }
        84..97 => Trouble::Writer {
            write: Write1 { name: rng.below(names) as usize, ..write(rng) },
            at: 1 + at / 2,
            by_progress: rng.chance(50),
        },
        _ => Trouble::Stop { at: 1 + at / 4 },
    }
}

fn verb(rng: &mut Rng, rests: bool) -> Verb {
    let version = rng.below(1 << 16) as usize;
    let branch = rng.below(BRANCHES.len() as u64) as usize;
    let (force, few) = (rng.chance(20), rng.chance(25));
    let tag = rng.below(2) as usize;
    match rng.below(1000) {
        0..280 => Verb::Write(write(rng)),
        280..300 => Verb::HeldMap(write(rng)),
        300..306 if rests => Verb::Rest(write(rng)),
        300..316 => Verb::Reopen,
        316..500 => Verb::Commit {
            source: match rng.below(100) {
                0..78 => Source::WorkTree,
                78..85 => Source::Dir,
                85..90 => Source::OneFile,
                _ => Source::Memory(rng.next()),
            },
            branch: few.then_some(branch),
            label: rng.chance(30),
        },
        500..550 => Verb::Checkout { version, force },
        550..565 => Verb::CheckoutOnly { version, name: rng.below(NAMES.len() as u64) as usize, force },
        565..575 => Verb::CheckoutTo { version, force },
        575..625 => Verb::Switch { branch, force },
        625..640 => Verb::SwitchNew { branch, start: few.then_some(version), force },
        640..660 => Verb::Merge { version },
        660..680 => Verb::Reset { version, hard: rng.chance(50) },
        680..700 => Verb::Branch { branch, version, force },
        700..718 => Verb::DeleteBranch { branch, force: rng.chance(50) },
        718..724 => Verb::RenameBranch { from: branch, to: rng.below(BRANCHES.len() as u64) as usize },
        724..740 => Verb::Tag { tag, version, annotated: rng.chance(50), force },
        740..750 => Verb::DeleteTag { tag },
        750..768 => Verb::Prune {
            branch: rng.chance(60).then_some(branch),
            latest: 1 + rng.below(4),
            every: few.then(|| 1 + rng.below(4)),
        },
        768..780 => Verb::Undo { version: rng.chance(50).then_some(version) },
        780..820 => Verb::Gc(match rng.below(100) {
            0..34 => Collect::Plain,
            34..67 => Collect::NoGrace,
            _ => Collect::Now,
        }),
        820..838 => Verb::Compact,
        838..852 => Verb::Fsck { quick: rng.chance(50) },
        852..872 => Verb::Clone { partial: rng.chance(50) },
        872..894 => Verb::Fetch,
        894..912 => Verb::Pull { branch },
        912..948 => Verb::Push { branch, tag: few.then_some(tag), force, delete: rng.chance(8) },
        948..968 => Verb::Watch { branch, seed: rng.next() },
        968..983 => Verb::Put { session: tag, rank: rng.below(2) as u32, seed: rng.next(), stage: rng.chance(40) },
        983..995 => Verb::Join { session: tag, ranks: 1 + rng.below(2) as u32 },
        _ => Verb::Damage { seed: rng.next() },
    }
}

/// The history of a seed. `rests`: with steps that take seconds.
pub fn history(seed: u64, len: usize, rests: bool) -> Vec<Step> {
    let mut rng = Rng(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let mut steps = Vec::with_capacity(len);
    for _ in 0..len {
        let place = match rng.below(100) {
            0..62 => 0,
            62..80 => 1,
            80..94 => 2,
            _ => 3,
        };
        let verb = verb(&mut rng, rests);
        let trouble = trouble(&mut rng);
        steps.push(Step { place, verb, trouble });
    }
    steps
}
