//! `mdl doctor` and `--device`, on machines with a GPU and without.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::Sandbox;

#[test]
fn it_says_where_work_is_done_and_what_was_found() {
    let s = Sandbox::empty();
    let found = s.json(&["doctor"]);
    let engine = found["engine"].as_str().unwrap();
    assert!(engine == "cpu" || engine.starts_with("cuda:0"), "{engine}");
    assert_eq!(found["device"], "auto");
    let what: Vec<&str> = found["findings"].as_array().unwrap().iter().map(|f| f["what"].as_str().unwrap()).collect();
    assert_eq!(what[..3], ["driver", "nvrtc", "kernels"]);
    // A GPU is used exactly where one was found to work.
    let works = found["findings"].as_array().unwrap().iter().any(|f| f["what"] == "cuda:0" && f["good"] == true);
    assert_eq!(works, engine != "cpu");
    let text = s.ok(&["doctor"]);
    assert!(text.starts_with("processor  ") && text.contains("auto: "), "{text}");
    assert!(s.ok(&["--device", "cpu", "doctor"]).ends_with("cpu: work is done on the processor\n"));
}

#[test]
fn a_device_that_is_not_there_is_refused_before_anything_is_done() {
    let s = Sandbox::empty();
    let run = s.run(&["--device", "cuda:63", "init"]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("no work on cuda:63: ") && run.err.contains("mdl doctor"), "{}", run.err);
    assert_eq!(s.run(&["log"]).code, 3, "no repository was made");
    for wrong in ["gpu", "cuda:", "cuda:x", "cuda:-1", ""] {
        let run = s.run(&["--device", wrong, "doctor"]);
        assert_eq!(run.code, 2, "{wrong}: {}", run.err);
        assert!(run.err.contains("auto, cpu, cuda or cuda:N") || wrong.is_empty(), "{}", run.err);
    }
}
