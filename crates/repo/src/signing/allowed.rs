//! Lists of keys: allowed signers as ssh-keygen(1) specifies them ("ALLOWED SIGNERS"), and keys that were revoked.

use crate::signing::{MAX_LIST, text_of};
use jiff::{civil::DateTime, tz::TimeZone};
use mdl_store::{RepoError, Result};
use ssh_key::{PublicKey, public::KeyData};
use std::path::Path;

/// Begins a list of revoked keys in OpenSSH's binary form.
const KRL: &str = "SSHKRL\n";

/// A line of a list: who signs with which key, for what, and when.
#[derive(Clone, Debug)]
pub struct AllowedSigner {
    /// Patterns of principals, separated by commas.
    pub principals: String,
    pub(super) key: KeyData,
    /// Patterns of namespaces; none: all.
    namespaces: Option<String>,
    /// Milliseconds since 1970 from which on the key counts.
    pub valid_after: Option<i64>,
    /// Milliseconds since 1970 until which the key counts.
    pub valid_before: Option<i64>,
}

/// Who may sign.
#[derive(Clone, Debug, Default)]
pub struct AllowedSigners(Vec<AllowedSigner>);

/// Keys whose signatures count no longer.
#[derive(Clone, Debug, Default)]
pub struct RevokedKeys(Vec<KeyData>);

/// A line that makes no sense: what follows from it is not guessed at.
fn refused(path: &Path, line: usize, why: &str) -> RepoError {
    RepoError::user(
        format!("{}, line {line}: {why}", path.display()),
        "a line is `PRINCIPALS [OPTIONS] KEYTYPE KEY`, as in `man ssh-keygen`, ALLOWED SIGNERS",
    )
}

/// Lines that say something, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The text up to the first separator outside of quotes, and what follows it.
fn until(text: &str, separator: fn(char) -> bool) -> (&str, &str) {
    let mut quoted = false;
    let end = text.find(|c| {
        quoted ^= c == '"';
        !quoted && separator(c)
    });
    match end {
        Some(at) => (&text[..at], text[at..].trim_start_matches(separator)),
        None => (text, ""),
    }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text)
}

/// `YYYYMMDD[HHMM[SS]][Z]`, without `Z` by the clock of this machine.
fn time(text: &str) -> Option<i64> {
    let (digits, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(digits) => (digits, TimeZone::UTC),
        None => (text, mdl_store::storage::without_forks(TimeZone::system)),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) || !matches!(digits.len(), 8 | 12 | 14) {
        return None;
    }
    let number = |from: usize, len: usize| digits.get(from..from + len).map_or(Some(0), |d| d.parse::<i8>().ok());
    let year = digits.get(..4)?.parse().ok()?;
    let (month, day) = (number(4, 2)?, number(6, 2)?);
    let at = DateTime::new(year, month, day, number(8, 2)?, number(10, 2)?, number(12, 2)?, 0).ok()?;
    zone.to_timestamp(at).ok().map(|t| t.as_millisecond())
}

/// Whether a list of patterns (`*`, `?`, `!` before one that must not match) has a name, as in OpenSSH.
pub(super) fn matches_list(list: &str, name: &str) -> bool {
    let mut found = false;
    for pattern in list.split(',').map(str::trim) {
        match pattern.strip_prefix('!') {
            Some(refused) if matches(refused, name) => return false,
            Some(_) => {}
            None => found |= matches(pattern, name),
        }
    }
    found
}

/// One pattern. Steps back to the last `*` only, so that no pattern takes more than length times length.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

impl AllowedSigner {
    fn parse(line: &str) -> std::result::Result<AllowedSigner, String> {
        let (principals, rest) = until(line, char::is_whitespace);
        let mut out = AllowedSigner {
            principals: unquoted(principals).to_owned(),
            // Replaced below; there is no empty key.
            key: KeyData::Ed25519(ssh_key::public::Ed25519PublicKey([0; 32])),
            namespaces: None,
            valid_after: None,
            valid_before: None,
        };
        let mut rest = rest;
        if PublicKey::from_openssh(rest).is_err() {
            let (options, after) = until(rest, char::is_whitespace);
            rest = after;
            let mut left = options;
            while !left.is_empty() {
                let (option, after) = until(left, |c| c == ',');
                left = after;
                out.option(option)?;
            }
        }
        out.key = PublicKey::from_openssh(rest).map_err(|e| format!("no key: {e}"))?.key_data().clone();
        Ok(out)
    }

    fn option(&mut self, text: &str) -> std::result::Result<(), String> {
        let (name, value) = text.split_once('=').map_or((text, ""), |(name, value)| (name, unquoted(value)));
        let at = || time(value).map(Some).ok_or_else(|| format!("{value:?} is no time: YYYYMMDD[HHMM[SS]][Z]"));
        match name.to_ascii_lowercase().as_str() {
            "namespaces" => self.namespaces = Some(value.to_owned()),
            "valid-after" => self.valid_after = at()?,
            "valid-before" => self.valid_before = at()?,
            "cert-authority" => return Err("certificates (cert-authority) are not supported: list the keys".to_owned()),
            _ => return Err(format!("{text:?} is no option, and no key")),
        }
        Ok(())
    }

    pub(super) fn is_for(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|list| matches_list(list, namespace))
    }
}

impl AllowedSigners {
    /// Reads a list.
    ///
    /// # Errors
    /// A line that makes no sense, or that names a certificate authority; an I/O error.
    pub fn read(path: &Path) -> Result<AllowedSigners> {
        AllowedSigners::parse(&text_of(path, MAX_LIST)?, path)
    }

    /// As `read`, of a text that was found at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<AllowedSigners> {
        let parsed = lines(text).map(|(n, line)| AllowedSigner::parse(line).map_err(|why| refused(path, n, &why)));
        parsed.collect::<Result<_>>().map(AllowedSigners)
    }

    /// Its lines.
    pub fn iter(&self) -> impl Iterator<Item = &AllowedSigner> {
        self.0.iter()
    }
}

impl RevokedKeys {
    /// Reads a list: a public key a line.
    ///
    /// # Errors
    /// OpenSSH's binary list (KRL), a line that is no key; an I/O error. Nothing counts as checked then.
    pub fn read(path: &Path) -> Result<RevokedKeys> {
        let refused = |why: String| {
            RepoError::user(format!("{}: {why}", path.display()), "list the revoked public keys, one a line")
        };
        let bytes = std::fs::read(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
        if bytes.starts_with(KRL.as_bytes()) {
            return Err(refused("binary lists of revoked keys (KRL) are not supported".to_owned()));
        }
        RevokedKeys::parse(&text_of(path, MAX_LIST)?).map_err(refused)
    }

    fn parse(text: &str) -> std::result::Result<RevokedKeys, String> {
        let key = |(n, line)| match PublicKey::from_openssh(line) {
            Ok(key) => Ok(key.key_data().clone()),
            Err(e) => Err(format!("line {n} is no public key: {e}")),
        };
        lines(text).map(key).collect::<std::result::Result<_, _>>().map(RevokedKeys)
    }

    pub(super) fn has(&self, key: &KeyData) -> bool {
        self.0.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    fn parse(line: &str) -> std::result::Result<AllowedSigner, String> {
        AllowedSigner::parse(line)
    }

    #[test]
    fn lines_are_read_as_ssh_keygen_does() {
        let plain = parse(&format!("ada@example.com,*@lab.example {KEY} a comment")).expect("a line");
        assert_eq!(plain.principals, "ada@example.com,*@lab.example");
        assert!(plain.is_for("mdl") && plain.is_for("git"));
        let line = format!(
            "\"ada,bob\" namespaces=\"mdl,git\",valid-after=\"20260102\",valid-before=\"20270102030405Z\" {KEY}"
        );
        let whole = parse(&line).expect("a line");
        assert_eq!(whole.principals, "ada,bob");
        assert!(whole.is_for("mdl") && !whole.is_for("file"));
        assert_eq!(whole.valid_before, Some(1_798_859_045_000));
        assert!(whole.valid_after < whole.valid_before);
    }

    #[test]
    fn what_is_not_understood_is_refused_and_not_passed_over() {
        for (line, said) in [
            (format!("ada cert-authority {KEY}"), "cert-authority"),
            (format!("ada namespaces=\"mdl\",cert-authority {KEY}"), "cert-authority"),
            (format!("ada valid-before=20261301 {KEY}"), "no time"),
            (format!("ada no-touch-required {KEY}"), "no option"),
            ("ada ssh-ed25519 AAAA".to_owned(), "no"),
            ("ada".to_owned(), "no"),
            (format!("ada valid-before=\"2026 {KEY}"), "no"),
        ] {
            let found = parse(&line).expect_err(&line);
            assert!(found.contains(said), "{line}: {found}");
        }
        assert!(RevokedKeys::parse(&format!("# gone\n{KEY} old\n")).is_ok());
        assert!(RevokedKeys::parse("SHA256:abc").is_err());
    }

    #[test]
    fn patterns_match_as_those_of_openssh() {
        for (list, name, fits) in [
            ("mdl", "mdl", true),
            ("m*,!mdl", "mdl", false),
            ("!git,*", "mdl", true),
            ("?dl", "mdl", true),
            ("*@*.org", "a@b.c.org", true),
            ("*@*.org", "a@b.com", false),
            ("", "mdl", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_list(list, name), fits, "{list} {name}");
        }
        let long = "a".repeat(5000);
        assert!(!matches_list(&"*a".repeat(40).replace('b', ""), &(long + "b")));
    }
}
