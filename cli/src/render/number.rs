//! Formats cosines.

use mdl_server::amounts::number;

/// A cosine: what is only nearly 1 shows how nearly (`1-3e-9`).
pub fn cosine(v: f64) -> String {
    let gap = 1.0 - v;
    if gap > 0.0 && gap < 1e-3 { format!("1-{}", number(gap)) } else { number(v) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_server::api::entry::json_number;

    #[test]
    fn what_json_lacks_is_text_and_cosines_show_their_gap() {
        assert_eq!(json_number(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(json_number(0.5).to_string(), "0.5");
        assert_eq!([cosine(1.0), cosine(1.0 - 2.0_f64.powi(-20)), cosine(-0.5)], ["1", "1-9.53674e-7", "-0.5"]);
    }
}
