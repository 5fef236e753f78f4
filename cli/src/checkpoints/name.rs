//! Parses step, epoch or a bare number from the name of a checkpoint.

use std::collections::BTreeMap;

/// Words that a step's number follows.
const STEPS: [&str; 9] = ["step", "steps", "globalstep", "iter", "iteration", "ba", "batch", "update", "updates"];
const EPOCHS: [&str; 3] = ["epoch", "epochs", "ep"];
/// With a dash the number is a step (Hugging Face); with `_` a save's number (Accelerate), or epoch and step (fairseq).
const SAVES: [&str; 2] = ["checkpoint", "ckpt"];
/// Words whose numbers say nothing about the run's progress.
const PARTS: [&str; 4] = ["rank", "shard", "mp", "v"];

/// Position of a checkpoint in its run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    pub step: Option<u64>,
    pub epoch: Option<f64>,
    /// A number that only gives the order.
    pub number: Option<u64>,
    pub metrics: BTreeMap<String, f64>,
    /// The checkpoint that the framework would load in the end.
    pub best: Option<String>,
}

impl Place {
    /// Returns the sort key for the order of commits.
    pub fn rank(&self) -> Option<u64> {
        self.step.or(self.number).or(self.epoch.map(|e| e as u64))
    }

    /// Reads a name: `checkpoint-500`, `epoch=1-step=500.ckpt`, `ep1-ba100-rank0.pt`, `global_step200`, `iter_0000100`,
    /// `500`.
    pub fn of_name(name: &str) -> Place {
        let mut place = Place::default();
        // Orbax names a step's directory so.
        if name.bytes().all(|b| b.is_ascii_digit()) {
            place.step = name.parse().ok();
        }
        let numbers = numbers(name);
        for (i, n) in numbers.iter().enumerate() {
            let word = n.word.as_str();
            if STEPS.contains(&word) {
                place.step = Some(n.value);
            } else if EPOCHS.contains(&word) {
                place.epoch = Some(n.value as f64);
            } else if SAVES.contains(&word) && n.between == "-" {
                place.step = place.step.or(Some(n.value));
            } else if SAVES.contains(&word) && n.between == "_" && numbers.get(i + 1).is_some_and(|m| m.word.is_empty())
            {
                place.epoch = Some(n.value as f64);
                place.step = numbers.get(i + 1).map(|m| m.value);
            } else if !word.is_empty() && !PARTS.contains(&word) && place.number.is_none() {
                place.number = Some(n.value);
            }
        }
        place
    }
}

struct Number {
    /// The letters before it, in lower case.
    word: String,
    /// The characters between word and number.
    between: String,
    value: u64,
}

/// Returns the whole numbers of a name with the words before them, without `10k`, `0.25` and numbers that overflow.
fn numbers(name: &str) -> Vec<Number> {
    let chars: Vec<char> = name.chars().collect();
    let mut out = Vec::new();
    let (mut word, mut between) = (String::new(), String::new());
    let mut i = 0;
    while i < chars.len() {
        if chars[i].is_ascii_digit() {
            let end = chars[i..].iter().position(|c| !c.is_ascii_digit()).map_or(chars.len(), |n| i + n);
            let next = (chars.get(end).copied(), chars.get(end + 1).copied());
            let fraction = matches!(next, (Some('.'), Some(d)) if d.is_ascii_digit()) || between == ".";
            let unit = matches!(next, (Some(c), after) if c.is_alphabetic() && !after.is_some_and(char::is_alphabetic));
            let digits: String = chars[i..end].iter().collect();
            if let (false, false, Ok(value)) = (fraction, unit, digits.parse()) {
                let (word, between) = (std::mem::take(&mut word), std::mem::take(&mut between));
                out.push(Number { word, between, value });
            }
            (word, between) = (String::new(), String::new());
            i = end;
            continue;
        }
        if chars[i].is_alphabetic() {
            if !between.is_empty() {
                (word, between) = (String::new(), String::new());
            }
            word.extend(chars[i].to_lowercase());
        } else {
            between.push(chars[i]);
        }
        i += 1;
    }
    out
}

/// The name without the ending of a checkpoint file: what a commit is called.
pub fn title(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() && ending.chars().all(char::is_alphabetic) => stem,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> (Option<u64>, Option<f64>, Option<u64>) {
        let p = Place::of_name(name);
        (p.step, p.epoch, p.number)
    }

    #[test]
    fn names_of_frameworks() {
        for name in ["checkpoint-500", "step_500", "step500", "step=500.ckpt", "global_step500", "iter_0000500.pth"] {
            assert_eq!(place(name), (Some(500), None, None), "{name}");
        }
        assert_eq!(place("step10000-unsharded").0, Some(10_000));
        assert_eq!(place("500"), (Some(500), None, None));
        assert_eq!(place("epoch=1-step=500.ckpt"), (Some(500), Some(1.0), None));
        assert_eq!(place("epoch=1-step=500-val_loss=0.25-v1.ckpt"), (Some(500), Some(1.0), None));
        assert_eq!(place("ep1-ba100-rank0.pt"), (Some(100), Some(1.0), None));
        assert_eq!(place("checkpoint_1_500.pt"), (Some(500), Some(1.0), None));
        assert_eq!(place("epoch_12.pth"), (None, Some(12.0), None));
    }

    #[test]
    fn numbers_that_are_no_steps() {
        assert_eq!(place("checkpoint_3"), (None, None, Some(3)));
        assert_eq!(place("model_0000999.pth"), (None, None, Some(999)));
        assert_eq!(place("step_10k"), (None, None, None));
        assert_eq!(place("last.ckpt"), (None, None, None));
        assert_eq!(place("step_99999999999999999999"), (None, None, None));
        assert_eq!(place("99999999999999999999"), (None, None, None));
        assert_eq!(Place::of_name("checkpoint_3").rank(), Some(3));
    }

    #[test]
    fn titles() {
        assert_eq!(title("epoch=1-step=500.ckpt"), "epoch=1-step=500");
        assert_eq!(title("checkpoint-500"), "checkpoint-500");
        assert_eq!(title("llama-3.1"), "llama-3.1");
    }
}
