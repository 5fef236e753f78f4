//! `mdl compare` end to end: numbers, parents, evaluators, files it writes, what it refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::Sandbox;
use serde_json::{Value, json};

/// A safetensors file of one 64 x 80 matrix and a bias.
fn checkpoint(s: &Sandbox, name: &str, plus: f32) {
    let values = |n: usize| (0..n).map(move |i| ((i as f32 * 0.7).sin() * 0.05 + plus).to_le_bytes());
    let header = r#"{"w.weight":{"dtype":"F32","shape":[64,80],"data_offsets":[0,20480]},"w.bias":{"dtype":"F32","shape":[80],"data_offsets":[20480,20800]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(values(5200).flatten());
    std::fs::write(s.work().join(name), file).unwrap();
}

fn systems(document: &Value, at: usize) -> &Vec<Value> {
    document["checkpoints"][at]["systems"].as_array().unwrap()
}

#[test]
fn every_system_in_a_history() {
    let s = Sandbox::new();
    checkpoint(&s, "1.safetensors", 0.0);
    checkpoint(&s, "2.safetensors", 1e-4);
    let found = s.json(&["compare", "1.safetensors", "2.safetensors"]);
    assert_eq!(found["lower_is_better"], Value::Null);
    for at in 0..2 {
        let rows = systems(&found, at);
        assert_eq!(rows.len(), 14);
        for row in rows {
            assert_eq!(row["logical_bytes"], json!(20800));
            assert!(row["stored_bytes"].as_u64().unwrap() > 20, "{row}");
            assert_eq!(row["quality"], Value::Null);
        }
        assert_eq!(rows[0]["max_error"], json!(0.0), "lossless");
    }
}

#[test]
fn settings_stay_with_their_system_and_searches_keep_the_error() {
    let s = Sandbox::new();
    checkpoint(&s, "1.safetensors", 0.0);
    let list = "uniform:min=4,max=64,adaptive,lattice:scale=model";
    let found = s.json(&["compare", "1.safetensors", "--systems", list]);
    let names: Vec<&str> = systems(&found, 0).iter().map(|r| r["asked"].as_str().unwrap()).collect();
    assert_eq!(names, ["uniform:min=4,max=64", "adaptive", "lattice:scale=model"]);
    let found = s.json(&["compare", "1.safetensors", "--systems", "adaptive,bins,lattice,fp4", "--at-error", "0.05"]);
    for row in &systems(&found, 0)[..3] {
        assert!(row["relative_error"].as_f64().unwrap() <= 0.05, "{row}");
    }
    assert_eq!(systems(&found, 0)[3]["system"], Value::Null, "fp4 is coarser");
    assert!(s.ok(&["compare", "1.safetensors", "--systems", "fp4", "--at-error", "0.05"]).contains("no setting"));
}

#[test]
fn an_evaluator_sees_the_files_and_may_fail() {
    let s = Sandbox::new();
    checkpoint(&s, "1.safetensors", 0.0);
    let judged = |command: &str| {
        let args = ["compare", "1.safetensors", "--systems", "lossless,nf4", "--lower-is-better", "--eval", command];
        s.json(&args)["checkpoints"][0].clone()
    };
    // A sum of the file: the same for what is lossless, another for what is not.
    let sums = judged("echo loading; cksum \"$MDL_CANDIDATE_DIR/1.safetensors\" | cut -d' ' -f1");
    assert_eq!(sums["quality"], sums["systems"][0]["quality"]);
    assert_ne!(sums["quality"], sums["systems"][1]["quality"]);
    assert!(sums["quality"].as_f64().unwrap() > 0.0);
    for bad in ["exit 3", "echo nan", "echo", "sleep 5 & wait; echo 1; false"] {
        assert_eq!(judged(bad)["quality"], Value::Null, "{bad}");
    }
    let slow = [
        "compare",
        "1.safetensors",
        "--systems",
        "nf4",
        "--lower-is-better",
        "--eval-timeout",
        "1",
        "--eval",
        "exec sleep 30",
    ];
    assert_eq!(s.json(&slow)["checkpoints"][0]["quality"], Value::Null);
}

#[test]
fn tables_and_pictures_are_written() {
    let s = Sandbox::new();
    checkpoint(&s, "1.safetensors", 0.0);
    let args = ["compare", "1.safetensors", "--systems", "nf4,bins:bins=8", "--csv", "o.csv", "--plot", "plots"];
    let shown = s.ok(&args);
    assert!(shown.contains("system") && shown.contains("bins:bins=8"), "{shown}");
    let csv = s.read("o.csv");
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.lines().all(|l| l.replace("\"bins:bins=8\"", "b").split(',').count() == 14), "{csv}");
    for name in ["checkpoints", "tradeoff", "ratios"] {
        let svg = s.read(&format!("plots/{name}.svg"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("nf4") && !svg.contains("NaN"));
    }
}

#[test]
fn gradients_and_what_is_refused() {
    let s = Sandbox::new();
    checkpoint(&s, "1.safetensors", 0.0);
    checkpoint(&s, "g.safetensors", 1.0);
    let found =
        s.json(&["compare", "1.safetensors", "--grads", "g.safetensors", "--systems", "paper:prune=0.2,lattice"]);
    assert_eq!(systems(&found, 0).len(), 2);
    s.write("plain.txt", "no tensors");
    for (code, args) in [
        (2, vec!["compare", "1.safetensors", "--systems", "nothing"]),
        (2, vec!["compare", "1.safetensors", "--systems", "uniform:bits=99"]),
        (2, vec!["compare", "1.safetensors", "--systems", ","]),
        (2, vec!["compare", "1.safetensors", "--eval", "echo 1"]),
        (2, vec!["compare", "1.safetensors", "--at-error", "nan"]),
        (2, vec!["compare"]),
        (1, vec!["compare", "plain.txt"]),
        (3, vec!["compare", "missing.safetensors"]),
    ] {
        assert_eq!(s.run(&args).code, code, "{args:?}");
    }
}
