//! Run-length coding by the sign trick (section 6, "Encoding Delta").
//!
//! A run of equal values is the negated value, and, only where the run is longer than one, its length after it. Values
//! are at most 0 and lengths at least 2, so the sign tells them apart.

use crate::{CodecError, Result};

/// The tokens of `values`, at most one per value. The caller keeps `values` to `i32::MAX` elements.
pub fn run_tokens(values: &[u16]) -> Vec<i32> {
    let mut tokens = Vec::new();
    for run in values.chunk_by(|a, b| a == b) {
        tokens.push(-i32::from(run[0]));
        if run.len() > 1 {
            tokens.push(i32::try_from(run.len()).unwrap_or(i32::MAX));
        }
    }
    tokens
}

/// Expands the tokens that `next` gives until `count` values below `limit` are there.
pub(super) fn expand(count: usize, limit: u16, mut next: impl FnMut() -> Result<i32>) -> Result<Vec<u16>> {
    let mut values: Vec<u16> = Vec::with_capacity(count);
    let mut extendable = false;
    while values.len() < count {
        let token = next()?;
        if token <= 0 {
            let value = u16::try_from(token.unsigned_abs()).ok().filter(|&v| v < limit);
            let value = value.ok_or(CodecError::Corrupt("a delta beyond the ring"))?;
            // A second run of the same value would have been part of the first.
            if values.last() == Some(&value) {
                return Err(CodecError::Corrupt("a run in two pieces"));
            }
            values.push(value);
            extendable = true;
            continue;
        }
        let more = token.unsigned_abs() as usize - 1;
        match values.last() {
            Some(&value) if extendable && more > 0 && more <= count - values.len() => {
                values.resize(values.len() + more, value);
            }
            _ => return Err(CodecError::Corrupt("a run length out of place")),
        }
        extendable = false;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(tokens: &[i32], count: usize) -> Result<Vec<u16>, CodecError> {
        let mut rest = tokens.iter();
        expand(count, 10, || rest.next().copied().ok_or(CodecError::Corrupt("truncated")))
    }

    #[test]
    fn runs_of_one_have_no_length() {
        let values = [0, 0, 0, 7, 0, 9, 9];
        let tokens = run_tokens(&values);
        assert_eq!(tokens, [0, 3, -7, 0, -9, 2]);
        assert_eq!(expanded(&tokens, values.len()).unwrap(), values);
        assert!(run_tokens(&[]).is_empty());
    }

    #[test]
    fn tokens_out_of_place_are_refused() {
        let bad: [&[i32]; 9] =
            [&[2], &[0, 1], &[0, 5], &[0, 2, 2], &[0, 0], &[-10], &[-70_000], &[0, i32::MAX], &[i32::MIN]];
        for tokens in bad {
            assert!(expanded(tokens, 4).is_err(), "{tokens:?}");
        }
        assert!(expanded(&[0, 2], 4).is_err());
        assert!(expanded(&[0, 2, -1, 2], 4).is_ok());
    }
}
