//! JSON output of every command: the fields that programs rely on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::Sandbox;
use serde_json::{Value, json};

/// Fails unless a document has exactly these fields.
fn fields(document: &Value, wanted: &str) {
    let mut found: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted: Vec<&str> = wanted.split_whitespace().collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted, "{document}");
}

const COMMIT: &str = "aged author commit date epoch fidelity files logical_bytes message meta metrics new_tensors \
    notes parents provenance pruned quality refs resume resumed_from signed signing_key step stored_bytes tensors tree \
    weights";

#[test]
fn commits() {
    let s = Sandbox::with_history();
    s.write("config.json", "{\"more\": true}\n");
    let done = s.json(&["commit", "-m", "more", "--metric", "loss=nan", "--metric", "acc=0.25"]);
    fields(
        &done,
        "branch commit configuration files files_added files_changed files_deleted logical_bytes message new_tensors \
         parent policy quality resume resumed_from signed step stored_bytes tensors",
    );
    assert_eq!((&done["branch"], &done["files"], &done["new_tensors"]), (&json!("main"), &json!(2), &json!(0)));
    let log = s.json(&["log", "main"]);
    assert_eq!(log.as_array().unwrap().len(), 4);
    fields(&log[0], COMMIT);
    assert_eq!(log[0]["metrics"], json!({"acc": 0.25, "loss": "NaN"}));
    assert_eq!((&done["resume"], &log[0]["resume"]), (&json!("weights-only"), &json!("weights-only")));
    assert_eq!((&log[1]["step"], &log[2]["epoch"]), (&json!(300), &json!(0.5)));
    assert_eq!(log[0]["refs"], json!(["HEAD -> main"]));
    assert_eq!(log[0]["commit"], done["commit"]);
    let shown = s.json(&["show", "v1"]);
    fields(&shown, &format!("{COMMIT} tag changes report"));
    assert_eq!(shown["tag"]["message"], "released");
    assert_eq!(shown["changes"], json!([{"path": "model.safetensors", "change": "modified", "mode_only": false}]));
    assert_eq!(shown["report"][0]["name"], "a");
}

#[test]
fn listings() {
    let s = Sandbox::with_history();
    let listed = s.json(&["ls"]);
    fields(&listed, "commit files");
    let file = &listed["files"][1];
    fields(file, "path logical_bytes executable id format tensors views");
    assert_eq!((&file["path"], &file["format"]), (&json!("model.safetensors"), &json!("safetensors")));
    let a = &file["tensors"][0];
    fields(a, "name storage dtype shape logical_bytes id stored_bytes scheme depth base");
    assert_eq!(
        (&a["name"], &a["dtype"], &a["shape"], &a["logical_bytes"]),
        (&json!("a"), &json!("f32"), &json!([4, 6]), &json!(96))
    );
    assert!(["stored", "zstd", "planes", "delta", "sparse", "mixed"].contains(&a["scheme"].as_str().unwrap()));
    assert_eq!(s.json(&["ls", "main", "config.json"])["files"].as_array().unwrap().len(), 1);
    assert_eq!(s.json(&["ls", "model.safetensors"])["files"][0]["tensors"].as_array().unwrap().len(), 2);
    assert_eq!(s.json(&["ls", "main~1:model.safetensors"])["files"][0]["path"], "model.safetensors");

    let status = s.json(&["status"]);
    fields(&status, "bisect branch commit clean files files_of in_progress problems");
    assert_eq!((&status["branch"], &status["clean"]), (&json!("main"), &json!(true)));
    s.write("new.txt", "x");
    let status = s.json(&["status"]);
    assert_eq!(status["files"], json!([{"path": "new.txt", "change": "added", "mode_only": false}]));

    let branches = s.json(&["branch"]);
    fields(&branches["branches"][1], "name remote current head");
    assert_eq!(branches["branches"][1]["current"], true);
    assert_eq!(branches["branches"][1]["head"]["refs"], json!(["HEAD -> main", "tag: v1"]));
    fields(&s.json(&["tag"])["tags"][0], "name commit annotated message date signed");
    fields(&s.json(&["reflog", "main"])[0], "name old new who date message");
    fields(&s.json(&["config"])["settings"][0], "key value default set_here help");
    fields(&s.json(&["config", "delta.max_depth"]), "key value");
}

#[test]
fn differences() {
    let s = Sandbox::with_history();
    let diff = s.json(&["diff", "main~1", "main"]);
    fields(&diff, "a b files");
    let file = &diff["files"][0];
    fields(file, "path change size_before size_after mode_only same_tensors tensors");
    assert_eq!(file["same_tensors"], 1);
    fields(&file["tensors"][0], "name change dtype shape changed rel_l2 max_abs cosine");
    assert_eq!((&file["tensors"][0]["changed"], &file["tensors"][0]["max_abs"]), (&json!(1.0), &json!(1.0)));
    assert_eq!(s.json(&["diff", "main"])["files"], json!([]));

    let same = s.json(&["verify", "config.json", "main"]);
    fields(&same, "same commit path size found_size first_difference");
    assert_eq!(same["same"], true);
    s.write("config.json", "{ \n");
    let run = s.run(&["--json", "verify", "config.json"]);
    let other: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((run.code, &other["same"], &other["first_difference"]), (1, &json!(false), &json!(1)));
}

#[test]
fn moves() {
    let s = Sandbox::with_history();
    let to = s.json(&["checkout", "main~2", "--to", "out"]);
    fields(&to, "commit fidelity to written kept removed bytes changed shared");
    assert_eq!(to["fidelity"], "exact");
    assert_eq!(to["written"], 2);
    let detached = s.json(&["checkout", "main~2"]);
    assert_eq!((&detached["branch"], &detached["written"], &detached["kept"]), (&Value::Null, &json!(1), &json!(1)));
    let back = s.json(&["switch", "main"]);
    fields(&back, "branch commit created fidelity written kept removed bytes");
    let made = s.json(&["branch", "old", "main~2"]);
    fields(&made, "branch commit");
    assert_eq!(s.json(&["branch", "-m", "old", "older"]), json!({"branch": "older", "was": "old"}));
    assert_eq!(s.json(&["branch", "-d", "older"])["deleted"][0]["branch"], "older");
    fields(&s.json(&["tag", "t"]), "tag commit annotated signed");
    assert_eq!(s.json(&["tag", "-d", "t"])["deleted"][0]["tag"], "t");
    fields(&s.json(&["reset", "main~1"]), "commit branch fidelity hard written kept removed");
    assert_eq!(s.json(&["merge", "main@{1}"])["result"], "fast_forward");
    assert_eq!(s.json(&["merge", "main~1"])["result"], "up_to_date");
    fields(&s.json(&["merge", "main~1"]), "result commit from bases recipe computed conflicts");
    fields(&s.json(&["init", "elsewhere"]), "repository work_tree branch created");
    s.ok(&["switch", "dev"]);
    assert_eq!(s.json(&["init", "-b", "other"])["branch"], "dev");
    assert!(s.run(&["init", "-b", "other"]).err.contains("no effect"));
    let run = s.run(&["--json", "tag", "-d", "nope", "v1", "nor this"]);
    let document: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(run.code, 3, "{run:?}");
    assert_eq!((&document["deleted"][0]["tag"], &document["failed"][1]["tag"]), (&json!("v1"), &json!("nor this")));
}

#[test]
fn housekeeping() {
    let s = Sandbox::with_history();
    fields(&s.json(&["fsck"]), "ok quick packs objects stored_bytes problems not_fetched");
    let gc = s.json(&["gc", "--dry-run"]);
    fields(
        &gc,
        "dry_run freed_bytes abandoned_bytes stored_bytes_before stored_bytes_after objects_before objects_after packs_before \
         packs_after packs_deleted packs_rewritten packs_condemned condemned_bytes packs_waiting waiting_bytes pruned_versions \
         aged_versions",
    );
    assert_eq!((&gc["dry_run"], &gc["freed_bytes"]), (&json!(true), &json!(0)));
    let compact = s.json(&["compact"]);
    fields(
        &compact,
        "dry_run stored_bytes_before stored_bytes_after packs_before packs_after tensors_reencoded deepest_before deepest_after",
    );
    assert_eq!((&compact["dry_run"], &compact["packs_after"]), (&json!(false), &json!(1)));
    let stats = s.json(&["stats"]);
    assert_eq!((&stats["commits"], &stats["unreachable_bytes"]), (&json!(4), &json!(0)));
    assert_eq!(stats["branches"].as_array().unwrap().len(), 2);
    assert!(s.ok(&["stats"]).contains("model.safetensors:a"));
    assert!(compact["packs_before"].as_u64().unwrap() > 1);
}

#[test]
fn retention() {
    let s = Sandbox::with_history();
    let report = s.json(&["prune", "--branch", "main", "--keep-latest", "1"]);
    fields(
        &report,
        "dry_run to rules branches pruned kept undecided freed_bytes base_bytes no_approximation no_state mixed levels",
    );
    // dev holds the first two, and the third is main's tip.
    assert_eq!((&report["pruned"], &report["branches"]), (&json!([]), &json!(["main"])));
    let report = s.json(&["prune", "--keep-latest", "1"]);
    assert_eq!(report["pruned"].as_array().unwrap().len(), 2);
    fields(&report["pruned"][0], "commit step");
    fields(&report["kept"][0], "commit step why");
    fields(&s.json(&["log", "main"])[1]["pruned"], "date rules");
    let back = s.json(&["prune", "--undo"]);
    fields(&back, "restored");
    assert_eq!(back["restored"].as_array().unwrap().len(), 2);
    assert_eq!(s.json(&["log", "main"])[1]["pruned"], Value::Null);
}

#[test]
fn room() {
    let s = Sandbox::with_history();
    let report = s.json(&["free", "0"]);
    fields(
        &report,
        "dry_run wanted_bytes stored_bytes_before cache_bytes garbage_bytes grace_bytes versions_bytes base_bytes \
         freed_bytes missing_bytes to pruned kept_versions held_bytes room_wanted_bytes",
    );
    assert_eq!((&report["freed_bytes"], &report["to"]), (&json!(0), &json!("gone")));
}

#[test]
fn imports() {
    let s = Sandbox::new();
    s.tensors("step_5.safetensors", 0.0);
    let planned = s.json(&["import", ".", "--dry-run"]);
    fields(&planned, "kind versions");
    fields(&planned["versions"][0], "source message step metrics tags");
    let report = s.json(&["import", "."]);
    fields(&report, "kind branch imported known logical_bytes source_bytes stored_bytes tags notes");
    fields(&report["imported"][0], "source commit step logical_bytes stored_bytes");
    assert_eq!((&report["kind"], &report["imported"][0]["step"]), (&json!("folder"), &json!(5)));
    assert_eq!(s.json(&["import", "."])["known"], 1);
}

#[test]
fn shards() {
    let s = Sandbox::new();
    s.tensors("a.safetensors", 0.0);
    s.tensors("b.safetensors", 1.0);
    let put = |rank: &str, file: &str| s.json(&["shard", "put", "--session", "run/1", "--rank", rank, file]);
    let first = put("0", "a.safetensors");
    fields(&first, "session rank files tensors new_tensors logical_bytes stored_bytes pack");
    assert_eq!((&first["rank"], &first["files"]), (&json!(0), &json!(1)));
    let listed = s.json(&["shard", "list"]);
    fields(&listed["sessions"][0], "session ranks files logical_bytes stored_bytes date commit");
    assert_eq!(listed["sessions"][0]["commit"], Value::Null);
    put("1", "b.safetensors");
    let join = ["shard", "join", "--session", "run/1", "--ranks", "2", "--step", "7"];
    let done = s.json(&join);
    fields(&done, "commit branch parent session message step files tensors new_tensors logical_bytes stored_bytes");
    assert_eq!((&done["message"], &done["files"]), (&json!("step 7"), &json!(2)));
    assert_eq!(s.json(&join), done);
    let listed = s.json(&["shard", "list"]);
    assert_eq!(listed["sessions"][0]["commit"], done["commit"]);
    assert_eq!(listed["sessions"][0]["ranks"], json!([0, 1]));
    assert!(s.ok(&["shard", "list"]).contains("run/1  2 ranks"));
}

#[test]
fn tensors() {
    let s = Sandbox::with_history();
    let stats = s.json(&["cat", "main~2:model.safetensors", "a"]);
    fields(&stats, "tensor dtype shape logical_bytes count min max mean std zeros nan inf");
    assert_eq!(
        (&stats["count"], &stats["min"], &stats["max"], &stats["mean"]),
        (&json!(24), &json!(0.0), &json!(35.0), &json!(17.5))
    );
    let part = s.json(&["cat", "main~2:model.safetensors", "a", "--slice", "-1,1:3"]);
    assert_eq!((&part["shape"], &part["min"], &part["max"]), (&json!([2]), &json!(31.0), &json!(32.0)));
    let nothing = s.json(&["cat", "main:model.safetensors", "a", "--slice", "4:"]);
    assert_eq!((&nothing["count"], &nothing["mean"]), (&json!(0), &Value::Null));
    fields(&s.json(&["cat", "main:model.safetensors", "a", "--npy", "-o", "a.npy"]), "output bytes shape");
}

#[test]
fn linked_work_trees() {
    const TREE: &str = "path name branch commit locked prunable";
    let s = Sandbox::with_history();
    let made = s.json(&["worktree", "add", "../beside", "-b", "side"]);
    fields(&made, &format!("{TREE} created written bytes"));
    assert_eq!((&made["branch"], &made["created"], &made["written"]), (&json!("side"), &json!(true), &json!(2)));
    fields(&s.json(&["worktree", "list"])["worktrees"][1], TREE);
    assert_eq!(s.json(&["worktree", "lock", "../beside", "--reason", "kept"])["locked"], json!("kept"));
    fields(&s.json(&["worktree", "unlock", "../beside"]), TREE);
    let gone = s.json(&["worktree", "remove", "../beside"]);
    fields(&gone, "removed");
    fields(&gone["removed"], TREE);
    assert_eq!(s.json(&["worktree", "prune"]), json!({"dry_run": false, "pruned": []}));
}

#[test]
fn signatures() {
    const VERDICT: &str = "status good principal fingerprint key_type reason";
    let s = Sandbox::with_history();
    let verdict = |args: &[&str]| -> Value {
        let run = s.run(&[&["--json"], args].concat());
        assert_eq!(run.code, 1, "{run:?}");
        serde_json::from_str(&run.out).unwrap()
    };
    let of_commit = verdict(&["verify-commit", "main", "--deep"]);
    fields(&of_commit, &format!("{VERDICT} commit fidelity closure"));
    fields(&of_commit["closure"], "versions left_out objects stored_bytes not_fetched problems");
    assert_eq!((&of_commit["status"], &of_commit["good"]), (&json!("unsigned"), &json!(false)));
    assert_eq!(verdict(&["verify-commit", "main"])["closure"], Value::Null);
    fields(&verdict(&["verify-tag", "v1"]), &format!("{VERDICT} tag object commit"));
    fields(&s.json(&["log", "--show-signature", "-n", "1"])[0]["signature"], VERDICT);
}
