//! Content-Type and Content-Disposition of stored files. Files are untrusted: none is sent as HTML, script or CSS.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";
/// What an extended header parameter leaves as it is (RFC 8187).
const ATTRIBUTE: AsciiSet = NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

/// A media type that is safe to show, by the name's ending.
pub fn media_type(path: &str) -> &'static str {
    let ending = path.rsplit_once('.').map(|(_, e)| e.to_ascii_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "json" => "application/json",
        "md" | "txt" | "py" | "yaml" | "yml" | "toml" | "cfg" | "ini" | "csv" | "tsv" | "log" | "jsonl" => TEXT,
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => BYTES,
    }
}

/// Content-Disposition with the file's name.
pub fn disposition(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or(path);
    let how = if media_type(path) == BYTES { "attachment" } else { "inline" };
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }
    };
    let (ascii, encoded): (String, _) = (name.chars().map(plain).collect(), utf8_percent_encode(name, &ATTRIBUTE));
    let text = format!("{how}; filename=\"{ascii}\"; filename*=UTF-8''{encoded}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_and_no_name_breaks_out() {
        for path in ["x.html", "x.svg", "x.js", "x.xhtml", "x", "x.HTM", "x.xml", "x.pdf"] {
            assert_eq!(media_type(path), BYTES, "{path}");
        }
        let header = disposition("a/b\"\r\nx: y é.json");
        let text = header.to_str().expect("ASCII");
        assert_eq!(text, "inline; filename=\"b___x__y__.json\"; filename*=UTF-8''b%22%0D%0Ax%3A%20y%20%C3%A9.json");
    }
}
