//! The rules of retention as properties, over generated versions.

use mdl_repo::{BestMode, Facts, Retention};
use proptest::{collection::vec, option, prelude::*};
use std::collections::BTreeMap;

/// Versions newest first, clocks in order.
fn versions() -> impl Strategy<Value = Vec<Facts>> {
    let one = (0..5_000i64, option::weighted(0.9, 0..40u64), option::weighted(0.7, -3..3i8), any::<bool>());
    vec(one, 0..40).prop_map(|all| {
        let (mut time, mut out) = (0, Vec::new());
        for (gap, step, loss, nan) in all {
            time += gap;
            let loss = loss.map(|l| if nan && l == 0 { f64::NAN } else { f64::from(l) });
            out.push(Facts {
                time_ms: time,
                step,
                metrics: loss.map(|l| ("loss".to_owned(), l)).into_iter().collect::<BTreeMap<_, _>>(),
            });
        }
        out.reverse();
        out
    })
}

fn rule() -> impl Strategy<Value = Retention> {
    let mode = option::of(prop_oneof![Just(BestMode::Min), Just(BestMode::Max)]);
    let leaf = prop_oneof![
        (1..50u64).prop_map(|n| Retention::LatestN { n }),
        (1..12u64).prop_map(|n| Retention::EveryNSteps { n }),
        (1..20u64).prop_map(|seconds| Retention::EveryNSeconds { seconds }),
        (1..5u64, mode).prop_map(|(n, mode)| Retention::BestN { n, metric: "loss".to_owned(), mode }),
        proptest::collection::btree_set(0..40u64, 1..5).prop_map(|steps| Retention::CustomSteps { steps }),
        (1..20u64).prop_map(|seconds| Retention::LatestDuration { seconds }),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| vec(inner, 1..4).prop_map(|rules| Retention::Any { rules }))
}

fn kept(rule: &Retention, all: &[Facts]) -> Vec<bool> {
    rule.choose(all).expect("sound rules").kept.iter().map(|why| !why.is_empty()).collect()
}

/// Facts may hold NaN, so versions are told apart by their place.
fn without(all: &[Facts], keep: &[bool]) -> Vec<Facts> {
    all.iter().zip(keep).filter(|(_, k)| **k).map(|(v, _)| v.clone()).collect()
}

proptest! {
    #[test]
    fn any_keeps_what_one_of_its_rules_keeps(all in versions(), rules in vec(rule(), 1..4)) {
        let each: Vec<Vec<bool>> = rules.iter().map(|r| kept(r, &all)).collect();
        let together = kept(&Retention::Any { rules }, &all);
        for i in 0..all.len() {
            prop_assert_eq!(together[i], each.iter().any(|k| k[i]));
        }
    }

    #[test]
    fn pruning_twice_prunes_nothing_more(all in versions(), rule in rule()) {
        let left = without(&all, &kept(&rule, &all));
        prop_assert!(kept(&rule, &left).iter().all(|k| *k), "{}", rule);
    }

    #[test]
    fn something_always_stays(all in versions(), rule in rule()) {
        // But for steps: a rule may name steps that no version has.
        let by_step = format!("{rule:?}").contains("Steps");
        prop_assert!(by_step || all.is_empty() || kept(&rule, &all).contains(&true));
    }

    #[test]
    fn json_comes_back_as_it_was(rule in rule()) {
        let text = serde_json::to_string(&rule).expect("json");
        prop_assert_eq!(serde_json::from_str::<Retention>(&text).expect("parse"), rule);
    }

    #[test]
    fn latest_n_keeps_the_first_n(all in versions(), n in 1..50usize) {
        let keep = kept(&Retention::LatestN { n: n as u64 }, &all);
        prop_assert!(keep.iter().enumerate().all(|(i, k)| *k == (i < n)));
    }

    #[test]
    fn steps_are_kept_by_their_number(all in versions(), n in 1..12u64) {
        let keep = kept(&Retention::EveryNSteps { n }, &all);
        let blind = all.iter().all(|v| v.step.is_none());
        for (v, k) in all.iter().zip(keep) {
            prop_assert_eq!(k, blind || v.step.is_some_and(|s| s % n == 0));
        }
    }

    #[test]
    fn every_n_seconds_leaves_no_gap_that_a_version_could_fill(all in versions(), seconds in 1..20u64) {
        let gap = seconds as i64 * 1000;
        let keep = kept(&Retention::EveryNSeconds { seconds }, &all);
        let times: Vec<i64> = without(&all, &keep).iter().rev().map(|v| v.time_ms).collect();
        prop_assert!(times.windows(2).all(|w| w[1] - w[0] >= gap));
        if let Some(oldest) = all.last() {
            prop_assert_eq!(times.first(), Some(&oldest.time_ms));
        }
        for v in &all {
            prop_assert!(times.iter().any(|t| (0..gap).contains(&(v.time_ms - t))), "{} lies in a gap", v.time_ms);
        }
    }

    #[test]
    fn a_run_that_prunes_as_it_goes_keeps_the_same_spaced_versions(all in versions(), seconds in 1..20u64) {
        let rule = Retention::EveryNSeconds { seconds };
        let mut alive: Vec<Facts> = Vec::new();
        for v in all.iter().rev() {
            alive.insert(0, v.clone());
            let keep = kept(&rule, &alive);
            // The tip stays, whatever the rule says.
            let staying = alive.iter().zip(keep).enumerate().filter(|(i, (_, k))| *i == 0 || *k);
            alive = staying.map(|(_, (v, _))| v.clone()).collect();
        }
        let at_once = without(&all, &kept(&rule, &all));
        let times = |l: &[Facts]| l.iter().map(|v| v.time_ms).collect::<Vec<_>>();
        let extra = times(&alive).into_iter().filter(|t| !times(&at_once).contains(t)).count();
        prop_assert!(extra <= 1, "only the tip may be there beside them");
        prop_assert!(times(&at_once).iter().all(|t| times(&alive).contains(t)));
    }

    #[test]
    fn no_version_that_goes_is_better_than_one_of_the_best(all in versions(), n in 1..5u64, max in any::<bool>()) {
        let mode = Some(if max { BestMode::Max } else { BestMode::Min });
        let rule = Retention::BestN { n, metric: "loss".to_owned(), mode };
        let choice = rule.choose(&all).expect("sound");
        let value = |v: &Facts| v.metrics.get("loss").copied().filter(|l| !l.is_nan());
        if choice.undecided.is_empty() {
            let keep: Vec<bool> = choice.kept.iter().map(|w| !w.is_empty()).collect();
            let known = all.iter().filter(|v| value(v).is_some()).count();
            prop_assert_eq!(keep.iter().filter(|k| **k).count(), known.min(n as usize));
            for (a, _) in all.iter().zip(&keep).filter(|(_, k)| **k) {
                for (b, _) in all.iter().zip(&keep).filter(|(_, k)| !**k) {
                    if let (Some(a), Some(b)) = (value(a), value(b)) {
                        let no_worse = if max { a >= b } else { a <= b };
                        prop_assert!(no_worse);
                    }
                }
            }
        } else {
            prop_assert!(all.iter().all(|v| value(v).is_none()));
        }
    }

    #[test]
    fn the_latest_duration_is_counted_from_the_newest(all in versions(), seconds in 1..20u64) {
        let keep = kept(&Retention::LatestDuration { seconds }, &all);
        let newest = all.first().map_or(0, |v| v.time_ms);
        for (v, k) in all.iter().zip(keep) {
            prop_assert_eq!(k, newest - v.time_ms <= seconds as i64 * 1000);
        }
    }
}

#[test]
fn rules_that_cannot_tell_keep_everything_and_say_so() {
    let all = vec![Facts::default(); 3];
    for rule in [
        Retention::EveryNSteps { n: 10 },
        Retention::CustomSteps { steps: [1].into() },
        Retention::BestN { n: 1, metric: "los".to_owned(), mode: Some(BestMode::Min) },
    ] {
        let choice = rule.choose(&all).expect("sound");
        assert!(choice.kept.iter().all(|w| !w.is_empty()));
        assert_eq!(choice.undecided, [rule.to_string()]);
    }
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    for text in [
        r#"{"rule": "LatestN", "n": 0}"#,
        r#"{"rule": "EveryNSteps", "n": 0}"#,
        r#"{"rule": "EveryNSeconds", "seconds": 0}"#,
        r#"{"rule": "LatestDuration", "seconds": 0}"#,
        r#"{"rule": "BestN", "n": 0, "metric": "loss"}"#,
        r#"{"rule": "BestN", "n": 1, "metric": "who_knows"}"#,
        r#"{"rule": "CustomSteps", "steps": []}"#,
        r#"{"rule": "Any", "rules": []}"#,
        r#"{"rule": "Any", "rules": [{"rule": "LatestN", "n": 3}, {"rule": "LatestN", "n": 0}]}"#,
    ] {
        let rule: Retention = serde_json::from_str(text).expect(text);
        assert!(rule.check().is_err() && rule.choose(&[]).is_err(), "{text}");
    }
    for text in [
        r#"{"rule": "LatestN"}"#,
        r#"{"rule": "LatestN", "n": 3, "m": 4}"#,
        r#"{"rule": "LatestN", "n": -1}"#,
        r#"{"rule": "Newest", "n": 3}"#,
        r#"{"rule": "BestN", "n": 1, "metric": "loss", "mode": "least"}"#,
    ] {
        serde_json::from_str::<Retention>(text).expect_err(text);
    }
}
