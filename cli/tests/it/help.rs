//! Snapshots of the help text of every command.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::Sandbox;

/// Verbs as the program lists them.
fn verbs(s: &Sandbox) -> Vec<String> {
    let help = s.ok(&["--help"]);
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let first =
        |l: &str| l.strip_prefix("  ").filter(|l| !l.starts_with(' ')).map(|l| l.split(' ').next().unwrap().to_owned());
    list.lines().filter_map(first).filter(|v| v != "help").collect()
}

#[test]
fn help_of_the_program() {
    insta::assert_snapshot!(Sandbox::empty().ok(&["--help"]));
}

#[test]
fn help_of_every_verb() {
    let s = Sandbox::empty();
    let verbs = verbs(&s);
    assert!(verbs.len() >= 22, "{verbs:?}");
    for verb in verbs {
        let help = s.ok(&[&verb, "--help"]);
        assert!(help.contains("Example"), "{verb} shows no example");
        insta::assert_snapshot!(format!("help_{verb}"), help);
    }
}

#[test]
fn completions_and_manual_pages_know_every_verb() {
    let s = Sandbox::empty();
    for shell in ["bash", "zsh", "fish"] {
        let script = s.ok(&["completions", shell]);
        assert!(verbs(&s).iter().all(|v| script.contains(v.as_str())), "{shell}");
    }
    assert!(s.ok(&["man"]).contains(".TH mdl 1"));
    s.ok(&["man", "pages"]);
    for verb in verbs(&s) {
        let page = s.read(&format!("pages/mdl-{verb}.1"));
        assert!(page.contains(&format!(".TH mdl-{verb} 1")), "{verb}: {page}");
    }
    assert_eq!(s.json(&["completions", "bash"])["shell"], "bash");
    assert!(s.json(&["man"])["page"].as_str().unwrap().contains(".TH"));
    assert!(s.json(&["man", "pages"])["pages"].as_array().unwrap().len() > 20);
}
