//! Reads step, epoch and metrics from `trainer_state.json` of Hugging Face's Trainer.

use super::name::Place;
use serde_json::Value;
use std::{fs, path::Path};

const FILE: &str = "trainer_state.json";
/// Largest `trainer_state.json` that is read.
const MOST: u64 = 256 << 20;
/// Endings of metrics about speed, which say nothing about the version.
const SPEED: [&str; 3] = ["_runtime", "_per_second", "_time"];

/// Adds what `trainer_state.json` says, where there is one.
pub fn ask(dir: &Path, place: &mut Place) {
    let path = dir.join(FILE);
    if !fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= MOST) {
        return;
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    if let Ok(state) = serde_json::from_str(&without_nan(&text)) {
        read(&state, place);
    }
}

fn read(state: &Value, place: &mut Place) {
    place.step = state["global_step"].as_u64().or(place.step);
    place.epoch = state["epoch"].as_f64().filter(|e| *e >= 0.0).or(place.epoch);
    let best = state["best_model_checkpoint"].as_str().map(Path::new);
    place.best = best.and_then(|p| p.file_name()?.to_str()).map(str::to_owned);
    // Older entries first: the last number of each name stays.
    for entry in state["log_history"].as_array().into_iter().flatten() {
        if entry["step"].as_u64().zip(place.step).is_some_and(|(at, now)| at > now) {
            continue;
        }
        for (name, value) in entry.as_object().into_iter().flatten() {
            let wanted = name == "loss" || name.starts_with("eval_") && !SPEED.iter().any(|s| name.ends_with(s));
            if let (true, Some(number)) = (wanted, value.as_f64()) {
                place.metrics.insert(name.clone(), number);
            }
        }
    }
}

/// Python writes `NaN` and `Infinity`, which JSON lacks: they become `null`.
fn without_nan(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let bare = ["NaN", "-Infinity", "Infinity"].iter().find(|word| !quoted && rest.starts_with(**word));
        if let Some(word) = bare {
            out.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_numbers_count() {
        let text = r#"{"global_step": 20, "epoch": 0.5, "best_model_checkpoint": "out/checkpoint-10", "log_history": [
            {"loss": 2.5, "grad_norm": NaN, "step": 10}, {"eval_loss": 2.25, "eval_runtime": 3.5, "step": 10},
            {"loss": 1.5, "learning_rate": -Infinity, "step": 20}, {"loss": 1.0, "step": 30}]}"#;
        let mut place = Place::of_name("checkpoint-19");
        read(&serde_json::from_str(&without_nan(text)).expect("json"), &mut place);
        assert_eq!((place.step, place.epoch), (Some(20), Some(0.5)));
        let metrics: Vec<_> = place.metrics.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(metrics, [("eval_loss", 2.25), ("loss", 1.5)]);
        assert_eq!(place.best.as_deref(), Some("checkpoint-10"));
    }

    #[test]
    fn words_in_text_stay() {
        assert_eq!(without_nan(r#"{"a \" NaN": NaN, "b\\": [Infinity]}"#), r#"{"a \" NaN": null, "b\\": [null]}"#);
        let mut place = Place::of_name("checkpoint-5");
        read(&serde_json::json!({"global_step": "many", "log_history": 3}), &mut place);
        assert_eq!(place.step, Some(5));
    }
}
