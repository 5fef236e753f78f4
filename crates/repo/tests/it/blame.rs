//! Blame against a brute-force table: every tensor of every version, decoded and compared with the one before.

use crate::support::{Place, place};
use mdl_objects::Id;
use mdl_repo::{Amounts, Blame, BlameQuery, Change, Selection, Silent, blame};
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

type Tensors = BTreeMap<String, Vec<f32>>;

/// A safetensors file of tensors with rows of two.
fn file(tensors: &Tensors) -> Vec<u8> {
    let (mut at, mut head, mut bytes) = (0, Vec::new(), Vec::new());
    for (name, values) in tensors {
        let end = at + values.len() * 4;
        let rows = values.len() / 2;
        head.push(format!(r#""{name}":{{"dtype":"F32","shape":[{rows},2],"data_offsets":[{at},{end}]}}"#));
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        at = end;
    }
    let head = format!("{{{}}}", head.join(","));
    [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &bytes].concat()
}

fn rel_l2(a: &[f32], b: &[f32]) -> f64 {
    let dd: f64 = a.iter().zip(b).map(|(x, y)| (f64::from(*y) - f64::from(*x)).powi(2)).sum();
    let aa: f64 = a.iter().map(|x| f64::from(*x).powi(2)).sum();
    if dd == 0.0 { 0.0 } else { (dd / aa).sqrt() }
}

fn ask(place: &Place, from: &Id, globs: &[&str], amounts: Amounts, row: Option<u64>, versions: usize) -> Blame {
    let globs: Vec<String> = globs.iter().map(|g| (*g).to_owned()).collect();
    let selection = Selection::new(&globs).expect("patterns");
    blame(&place.repo, from, &BlameQuery { selection, amounts, row, versions }, &Silent).expect("blame")
}

/// Per tensor: version, what happened, and by how much.
type Table = BTreeMap<String, Vec<(usize, Change, Option<f64>)>>;

fn table(found: &Blame) -> Table {
    let changes = |t: &mdl_repo::BlamedTensor| t.changes.iter().map(|c| (c.version, c.change, c.rel_l2)).collect();
    found.tensors.iter().map(|t| (t.name.clone(), changes(t))).collect()
}

/// The same, from the values of all versions; of one row only, where that is asked for.
fn brute(versions: &[Tensors], row: Option<usize>) -> Table {
    let part = |values: &Vec<f32>| row.map_or(values.clone(), |r| values[2 * r..2 * r + 2].to_vec());
    let mut out = Table::new();
    for (i, now) in versions.iter().enumerate() {
        let before = i.checked_sub(1).map(|b| &versions[b]);
        for (name, values) in now {
            let all = out.entry(name.clone()).or_default();
            match before.and_then(|b| b.get(name)) {
                Some(old) if old == values => {}
                Some(old) if old.len() != values.len() => all.push((i, Change::Modified, None)),
                Some(old) if part(old) == part(values) => {}
                Some(old) => all.push((i, Change::Modified, Some(rel_l2(&part(old), &part(values))))),
                None => all.push((i, Change::Added, None)),
            }
        }
        for name in before.into_iter().flat_map(|b| b.keys()).filter(|n| !now.contains_key(*n)) {
            out.entry(name.clone()).or_default().push((i, Change::Deleted, None));
        }
    }
    out
}

fn commits(place: &Place, versions: &[Tensors]) -> Vec<Id> {
    let mut ids = Vec::new();
    for (i, tensors) in versions.iter().enumerate() {
        place.write("model.safetensors", &file(tensors));
        // Versions with the same tensors differ all the same.
        place.write("number.txt", i.to_string().as_bytes());
        ids.push(place.commit(&format!("number {i}")).id);
    }
    ids
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn it_equals_a_brute_force_table(changes in vec((0usize..4, 0usize..6, 0u8..5), 3..12)) {
        let names = ["embed.weight", "layers.0.w", "layers.1.w", "head"];
        let mut now: Tensors = names.iter().map(|n| ((*n).to_owned(), vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).collect();
        let mut versions = vec![now.clone()];
        for (i, (tensor, at, what)) in changes.iter().enumerate() {
            let name = names[*tensor].to_owned();
            match what {
                0 => drop(now.remove(&name)),
                1 => drop(now.insert(name, vec![i as f32; 4])),
                _ => {
                    let values = now.entry(name).or_insert_with(|| vec![0.5; 6]);
                    let n = values.len();
                    values[at % n] += i as f32;
                }
            }
            if now.is_empty() {
                now.insert("head".to_owned(), vec![7.0; 6]);
            }
            versions.push(now.clone());
        }
        let place = place();
        let ids = commits(&place, &versions);
        let last = ids.last().expect("versions");
        let found = ask(&place, last, &[], Amounts::All, None, usize::MAX);
        prop_assert_eq!(found.versions.iter().map(|v| v.id).collect::<Vec<_>>(), ids.clone());
        prop_assert_eq!(table(&found), brute(&versions, None));
        // Without amounts the same changes; of the last ones, these.
        let strip = |t: Table| -> BTreeMap<String, Vec<(usize, Change)>> {
            t.into_iter().map(|(n, all)| (n, all.into_iter().map(|(v, c, _)| (v, c)).collect())).collect()
        };
        let none = ask(&place, last, &[], Amounts::None, None, usize::MAX);
        prop_assert_eq!(strip(table(&none)), strip(brute(&versions, None)));
        prop_assert!(none.tensors.iter().flat_map(|t| &t.changes).all(|c| c.rel_l2.is_none()));
        let lasts = ask(&place, last, &[], Amounts::Last, None, usize::MAX);
        for (name, all) in table(&lasts) {
            prop_assert_eq!(all.last().map(|c| c.2), brute(&versions, None)[&name].last().map(|c| c.2));
        }
        // Rows, of tensors that all versions have in one shape.
        let rows = ask(&place, last, &[], Amounts::None, Some(1), usize::MAX);
        for (name, all) in table(&rows) {
            prop_assert_eq!(&all, &brute(&versions, Some(1))[&name]);
        }
    }
}

#[test]
fn patterns_limits_and_rows_that_are_not_there() {
    let place = place();
    let tensors = |a: f32| Tensors::from([("a".to_owned(), vec![a; 4]), ("b".to_owned(), vec![1.0; 4])]);
    let ids = commits(&place, &[tensors(1.0), tensors(2.0), tensors(2.0), tensors(3.0)]);
    let found = ask(&place, &ids[3], &[":a"], Amounts::Last, None, usize::MAX);
    assert_eq!(found.tensors.len(), 1);
    assert_eq!(
        table(&found)["a"],
        [(0, Change::Added, None), (1, Change::Modified, None), (3, Change::Modified, Some(0.5))]
    );
    let few = ask(&place, &ids[3], &[], Amounts::None, None, 2);
    assert!(few.more);
    assert_eq!(
        table(&few),
        Table::from([("a".to_owned(), vec![(1, Change::Modified, None)]), ("b".to_owned(), vec![])])
    );
    assert!(ask(&place, &ids[3], &["nothing"], Amounts::All, None, 9).tensors.is_empty());
    let selection = Selection::new(&[]).expect("all");
    let query = BlameQuery { selection, amounts: Amounts::None, row: Some(2), versions: 9 };
    blame(&place.repo, &ids[3], &query, &Silent).expect_err("two rows only");
}
