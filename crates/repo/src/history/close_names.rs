//! Names like one that is not there, for messages.

use std::cmp::Ordering;

/// Names that are told, at most.
const MOST: usize = 3;
/// How alike they are at least, from 0 (nothing in common) to 1 (the same).
const ALIKE: f64 = 0.75;
/// Characters of a name that is compared: the time it takes grows with the square.
const LONGEST: usize = 200;

/// `did you mean loss or eval/loss?`, after a front; empty where no name is like what was asked for.
pub(crate) fn did_you_mean<'a>(front: &str, wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    match close(wanted, names).as_slice() {
        [] => String::new(),
        [one] => format!("{front}did you mean {one}?"),
        [first @ .., last] => format!("{front}did you mean {} or {last}?", first.join(", ")),
    }
}

/// The names that are most like it, the closest first.
fn close<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    if wanted.is_empty() || wanted.len() > LONGEST {
        return Vec::new();
    }
    let scored = names.filter(|name| name.len() <= LONGEST).map(|name| (likeness(wanted, name), name));
    let mut found: Vec<(f64, &str)> = scored.filter(|(score, _)| *score >= ALIKE).collect();
    found.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then(a.1.cmp(b.1)));
    found.dedup_by(|a, b| a.1 == b.1);
    found.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// How alike they are. What holds the other is: `loss` and `eval/loss`.
fn likeness(wanted: &str, name: &str) -> f64 {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    let held = name.contains(&wanted) || (name.len() > 2 && wanted.contains(&name));
    let alike = strsim::jaro_winkler(&wanted, &name);
    if held { alike.max(0.9) } else { alike }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_names_come_first() {
        let names = ["loss", "eval/loss", "acc", "lr", "grad_norm", "tokens"];
        let ask = |wanted: &str| did_you_mean("; ", wanted, names.into_iter());
        assert_eq!(ask("los"), "; did you mean loss or eval/loss?");
        assert_eq!(ask("Eval-Loss"), "; did you mean eval/loss or loss?");
        assert_eq!(ask("gradnorm"), "; did you mean grad_norm?");
        assert_eq!([ask("perplexity"), ask(""), ask(&"loss".repeat(99))], ["", "", ""]);
        let many = ["loss/a", "loss/b", "loss/c", "loss/d", "loss/a"];
        assert_eq!(close("loss", many.into_iter()), ["loss/a", "loss/b", "loss/c"]);
    }
}
