//! Bisections of made-up graphs, with and without noise, by an oracle that knows the first bad version.

use super::{graph::Node, *};
use mdl_objects::Kind;
use proptest::{collection::vec, prelude::*};

fn id(n: usize) -> Id {
    Id::from_content(Kind::Commit, &n.to_le_bytes())
}

/// Candidates with these parents, each a place before its own.
fn graph(parents: &[Vec<u32>]) -> Candidates {
    let node = |(n, parents): (usize, &Vec<u32>)| Node { id: id(n), parents: parents.clone(), value: None };
    Candidates { nodes: parents.iter().enumerate().map(node).collect() }
}

fn line(n: usize) -> Candidates {
    graph(&(0..n).map(|i| (i > 0).then(|| i as u32 - 1).into_iter().collect()).collect::<Vec<_>>())
}

fn state(noise: Option<Noise>) -> State {
    State { branch: Some("main".to_owned()), commit: None, checkout: false, marks: Vec::new(), noise }
}

/// The candidates that verdicts leave, as `Candidates::between` has them.
fn left(all: &Candidates, state: &State) -> Candidates {
    let mut is_left = vec![true; all.len()];
    for mark in state.marks.iter().filter(|m| !m.noisy && m.verdict != Verdict::Skip) {
        let history = all.ancestors(all.place(&mark.commit).unwrap_or_default());
        is_left.iter_mut().zip(history).for_each(|(l, is_in)| *l &= is_in == (mark.verdict == Verdict::Bad));
    }
    let mut places = vec![None; all.len()];
    let mut nodes: Vec<Node> = Vec::new();
    for (at, node) in all.nodes.iter().enumerate().filter(|(at, _)| is_left[*at]) {
        places[at] = Some(nodes.len() as u32);
        let parents = node.parents.iter().filter_map(|p| places[*p as usize]).collect();
        nodes.push(Node { parents, ..node.clone() });
    }
    Candidates { nodes }
}

/// Runs a bisection to its end: what it found, tests and rounds.
fn run(
    all: &Candidates,
    noise: Option<Noise>,
    jobs: usize,
    verdict: &mut dyn FnMut(usize) -> Verdict,
) -> (Outlook, usize, usize) {
    let mut state = state(noise);
    state.marks.push(Mark { commit: all.nodes[all.len() - 1].id, verdict: Verdict::Bad, noisy: false });
    let (mut tests, mut rounds) = (0, 0);
    loop {
        let candidates = left(all, &state);
        let (bad, skipped) = (state.with_verdict(Verdict::Bad), state.with_verdict(Verdict::Skip));
        let outlook = decide(&candidates, &bad, &|id| skipped.contains(id), &state, jobs);
        let Outlook::Test { commits, .. } = outlook else { return (outlook, tests, rounds) };
        rounds += 1;
        for commit in commits {
            tests += 1;
            let verdict = verdict(all.place(&commit).expect("a candidate"));
            state.marks.push(Mark { commit, verdict, noisy: noise.is_some() && verdict != Verdict::Skip });
        }
        assert!(tests < 100_000, "it has no end");
    }
}

fn oracle(all: &Candidates, first_bad: usize) -> impl FnMut(usize) -> Verdict + '_ {
    move |at| if all.ancestors(at)[first_bad] { Verdict::Bad } else { Verdict::Good }
}

#[test]
fn a_line_of_a_thousand_takes_ten_tests_wherever_the_first_bad_one_is() {
    let all = line(1000);
    for first_bad in 0..1000 {
        let (found, tests, _) = run(&all, None, 1, &mut oracle(&all, first_bad));
        assert_eq!(found, Outlook::Found { commit: id(first_bad), probability: None });
        assert!(tests <= 10, "{tests} tests for {first_bad}");
    }
}

#[test]
fn jobs_cut_the_rounds() {
    let all = line(1000);
    // A round of three leaves a quarter: five rounds of 4^5 = 1024.
    for (jobs, most) in [(3, 5), (7, 4), (31, 2)] {
        for first_bad in (0..1000).step_by(7) {
            let (found, _, rounds) = run(&all, None, jobs, &mut oracle(&all, first_bad));
            assert_eq!(found, Outlook::Found { commit: id(first_bad), probability: None });
            assert!(rounds <= most, "{rounds} rounds of {jobs} for {first_bad}");
        }
    }
}

/// A generator of noise (SplitMix64): numbers from 0 to 1.
struct Noisy(u64);

impl Noisy {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How many of 100 seeded searches in a line of 1,000 find the first bad version.
fn right_of_100(noise: Noise, jobs: usize) -> usize {
    let all = line(1000);
    let most = noise.repeat as usize * 10;
    let mut right = 0;
    for seed in 0..100u64 {
        let mut noisy = Noisy(seed);
        let first_bad = (noisy.next() * 1000.0) as usize;
        let mut verdict = |at: usize| match (at >= first_bad) ^ (noisy.next() < noise.rate) {
            true => Verdict::Bad,
            false => Verdict::Good,
        };
        let (found, tests, _) = run(&all, Some(noise), jobs, &mut verdict);
        assert!(tests <= most, "{tests} tests");
        right += usize::from(matches!(found, Outlook::Found { commit, .. } if commit == id(first_bad)));
    }
    right
}

#[test]
fn noisy_verdicts_find_it_in_95_of_100_searches() {
    for (repeat, rate, jobs) in [(5, 0.1, 1), (5, 0.05, 1), (8, 0.2, 1), (5, 0.1, 2), (5, 0.1, 4)] {
        let right = right_of_100(Noise { repeat, rate }, jobs);
        assert!(right >= 95, "{right} of 100 with {repeat}, {rate}, {jobs} jobs");
    }
}

proptest! {
    #[test]
    fn on_any_graph_it_finds_what_brute_force_finds(
        links in vec(vec(0u32..1_000, 1..4), 1..60),
        at in 0usize..1_000,
        jobs in 1usize..5,
        untestable in vec(0usize..1_000, 0..6),
    ) {
        let mut parents: Vec<Vec<u32>> = vec![Vec::new()];
        for link in &links {
            let n = parents.len() as u32;
            // One of them is the version before, so that the last one has all in its history.
            let mut these: Vec<u32> = link.iter().map(|l| l % n).chain([n - 1]).collect();
            these.sort_unstable();
            these.dedup();
            parents.push(these);
        }
        let all = graph(&parents);
        let first_bad = at % all.len();
        let skipped: Vec<usize> = untestable.iter().map(|n| n % all.len()).collect();
        let mut truth = oracle(&all, first_bad);
        let mut verdict = |at: usize| if skipped.contains(&at) { Verdict::Skip } else { truth(at) };
        let (found, tests, _) = run(&all, None, jobs, &mut verdict);
        prop_assert!(tests <= all.len());
        match found {
            Outlook::Found { commit, .. } => prop_assert_eq!(commit, id(first_bad)),
            Outlook::Undecided { commits } => {
                prop_assert!(commits.contains(&id(first_bad)));
                // All but the bad end are untestable.
                let known = commits.iter().filter(|c| skipped.iter().any(|s| id(*s) == **c)).count();
                prop_assert!(known + 1 >= commits.len());
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
