//! Filters of the log: which versions touched what patterns choose, against a comparison of every tensor.

use crate::support::{Place, place};
use mdl_objects::Id;
use mdl_repo::{LogFilter, Selection, Step, history};

/// A safetensors file of one-element tensors.
fn tensors(values: &[(&str, f32)]) -> Vec<u8> {
    let head = values.iter().enumerate().map(|(i, (name, _))| {
        format!(r#""{name}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}}"#, i * 4, i * 4 + 4)
    });
    let head = format!("{{{}}}", head.collect::<Vec<_>>().join(","));
    let mut out = (head.len() as u64).to_le_bytes().to_vec();
    out.extend(head.bytes());
    out.extend(values.iter().flat_map(|(_, v)| v.to_le_bytes()));
    out
}

fn touched(place: &Place, from: &Id, globs: &[&str]) -> Vec<String> {
    let globs: Vec<String> = globs.iter().map(|g| (*g).to_owned()).collect();
    let filter = LogFilter { touching: Some(Selection::new(&globs).expect("patterns")), ..LogFilter::default() };
    let mut filtering = filter.begin(&place.repo).expect("begin");
    let mut out = Vec::new();
    for step in history(&place.repo, &[*from]).expect("history") {
        let step: Step = step.expect("step");
        if filtering.passes(&step).expect("told") {
            out.push(step.commit.message.clone());
        }
    }
    out.reverse();
    out
}

#[test]
fn versions_that_touched_a_file_or_a_tensor() {
    let place = place();
    let write = |embed: f32, head: f32| {
        place.write("run/model.safetensors", &tensors(&[("embed.weight", embed), ("head.weight", head)]));
    };
    write(1.0, 1.0);
    place.commit("first");
    write(2.0, 1.0);
    place.commit("embed");
    place.write("config.json", b"{}");
    place.commit("config");
    write(2.0, 3.0);
    place.commit("head");
    std::fs::remove_file(place.path().join("config.json")).expect("removed");
    let last = place.commit("no config").id;
    assert_eq!(touched(&place, &last, &["*.safetensors:*embed*"]), ["first", "embed"]);
    assert_eq!(touched(&place, &last, &[":head.*"]), ["first", "head"]);
    assert_eq!(touched(&place, &last, &["run/model.safetensors"]), ["first", "embed", "head"]);
    assert_eq!(touched(&place, &last, &["*.json"]), ["config", "no config"]);
    assert_eq!(touched(&place, &last, &["*.json", ":embed*"]), ["first", "embed", "config", "no config"]);
    assert!(touched(&place, &last, &["nothing"]).is_empty());
    Selection::new(&["a[".to_owned()]).expect_err("no pattern");
}
