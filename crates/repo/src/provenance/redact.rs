//! Takes secrets out of command lines and addresses before they are recorded.
//!
//! The rule goes by names and by shapes (docs/provenance.md has it for people). It errs towards taking out too much,
//! and cannot know a secret that looks like any other word.

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Words of a name whose value is a secret.
const SECRET: [&str; 19] = [
    "auth",
    "authorization",
    "apikey",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "pat",
    "pwd",
    "secret",
    "secrets",
    "sig",
    "signature",
    "token",
    "accesskey",
    "privatekey",
];
/// Words before `key` in such a name: `api_key`, `--access-key`.
const KEYS: [&str; 9] = ["access", "account", "api", "auth", "encryption", "private", "secret", "shared", "signing"];
/// What secrets of well-known systems begin with.
const PREFIXES: [&str; 22] = [
    "AKIA",
    "ASIA",
    "AIza",
    "dapi",
    "dop_v1_",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "hf_",
    "key-",
    "npm_",
    "nvapi-",
    "pypi-",
    "sk-",
    "sk_live_",
    "xoxb-",
    "xoxp-",
];
/// Characters of a secret at least, for its beginning to tell.
const SHORTEST: usize = 16;

/// The words of a name: `--hubToken`, `wandb.api_key`, `HF_TOKEN`.
fn words(name: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        if begins {
            out.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(last) = out.last_mut()
        {
            last.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    out.retain(|word| !word.is_empty());
    out
}

/// Whether the value of this name is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let is_key = |pair: &[String]| matches!(pair, [a, b] if b.starts_with("key") && KEYS.contains(&a.as_str()));
    words.iter().any(|word| SECRET.contains(&word.as_str())) || words.windows(2).any(is_key)
}

/// A command line with its secrets replaced, and the home directory of its user written `~`.
pub fn redacted_command(command: &[String], home: Option<&str>) -> Vec<String> {
    let mut follows = false;
    let mut out = Vec::with_capacity(command.len());
    for argument in command {
        let is_option = argument.starts_with('-') && argument.len() > 1;
        if std::mem::take(&mut follows) && !is_option {
            out.push(REDACTED.to_owned());
            continue;
        }
        follows = is_option && !argument.contains(['=', ' ']) && is_secret_name(argument);
        out.push(redacted(argument, home));
    }
    out
}

/// One argument, or the value of a variable.
pub(super) fn redacted(text: &str, home: Option<&str>) -> String {
    if text.contains("-----BEGIN ") {
        return REDACTED.to_owned();
    }
    // `NAME=value`, or a header `Name: value`. What stands before a space is no name, but a program in quotes.
    let cut = text.find('=').or_else(|| text.find(": ").map(|at| at + 1));
    if let Some(at) = cut
        && let (name, value) = text.split_at(at + 1)
        && !name.contains("://")
        && !name.trim_end_matches(['=', ' ']).contains(char::is_whitespace)
        && !value.is_empty()
        && is_secret_name(name)
    {
        return format!("{name}{REDACTED}");
    }
    let text: String = text.split_inclusive(char::is_whitespace).map(piece).collect();
    without_home(&text, home)
}

/// A part of an argument without spaces inside: secrets in addresses, in pairs and by their beginnings.
fn piece(text: &str) -> String {
    let (text, space) = text.split_at(text.trim_end().len());
    if let Some((name, value)) = text.split_once('=')
        && !name.contains("://")
        && !value.is_empty()
        && is_secret_name(name)
    {
        return format!("{name}={REDACTED}{space}");
    }
    let url = redacted_url(text);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let (mut out, mut run) = (String::new(), String::new());
    let flush = |run: &mut String, out: &mut String| {
        let is_secret = run.len() >= SHORTEST && PREFIXES.iter().any(|prefix| run.starts_with(prefix));
        out.push_str(if is_secret { REDACTED } else { run });
        run.clear();
    };
    for c in url.chars() {
        if is_part(c) {
            run.push(c);
        } else {
            flush(&mut run, &mut out);
            out.push(c);
        }
    }
    flush(&mut run, &mut out);
    out + space
}

/// An address without the name and password in it, and without the values of its query that are secrets, such as the
/// signature of one that was made for a while. `ssh://git@host` keeps its name, which is the service's.
pub fn redacted_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, tail) = rest.split_at(end);
    let host = match host.rsplit_once('@') {
        None => host.to_owned(),
        Some(("git", host)) => format!("git@{host}"),
        Some((_, host)) => host.to_owned(),
    };
    let Some((path, query)) = tail.split_once('?') else { return format!("{scheme}://{host}{tail}") };
    let (query, fragment) = query.split_once('#').map_or((query, None), |(q, f)| (q, Some(f)));
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_secret_name(name) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    let fragment = fragment.map_or_else(String::new, |f| format!("#{f}"));
    format!("{scheme}://{host}{path}?{query}{fragment}")
}

/// With `~` for the home directory, whose path has the user's name.
fn without_home(text: &str, home: Option<&str>) -> String {
    let Some(home) = home.map(|home| home.trim_end_matches('/')).filter(|home| home.len() > 1) else {
        return text.to_owned();
    };
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(home) {
        let (before, after) = (&rest[..at], &rest[at + home.len()..]);
        let is_whole = after.is_empty() || after.starts_with(['/', ':', ',', ' ', '"', '\'']);
        out.push_str(before);
        out.push_str(if is_whole { "~" } else { home });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> String {
        redacted(text, Some("/home/ada"))
    }

    #[test]
    fn secrets_go_by_the_name_before_them() {
        let line = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            redacted_command(&words, None).join(" ")
        };
        for (said, kept) in [
            ("train --hub-token abc --lr 1", "train --hub-token [redacted] --lr 1"),
            ("train --api_key=abc", "train --api_key=[redacted]"),
            ("train wandb.apiKey=abc HF_TOKEN=abc", "train wandb.apiKey=[redacted] HF_TOKEN=[redacted]"),
            ("train --password --lr 1", "train --password --lr 1"),
            (
                "train --max_tokens 512 --tokenizer gpt2 --author a",
                "train --max_tokens 512 --tokenizer gpt2 --author a",
            ),
            ("train --key-bits 4 --monkey 1", "train --key-bits 4 --monkey 1"),
        ] {
            assert_eq!(line(said), kept);
        }
        assert_eq!(one("Authorization: Bearer abc"), "Authorization: [redacted]");
        assert_eq!(one("export HF_TOKEN=abc; python train.py"), "export HF_TOKEN=[redacted] python train.py");
    }

    #[test]
    fn secrets_go_by_their_shape() {
        assert_eq!(one("hf_abcdefghijklmnopqrst"), REDACTED);
        assert_eq!(one("x:ghp_abcdefghijklmnopqrst,y"), format!("x:{REDACTED},y"));
        assert_eq!(one("--model=hf_small"), "--model=hf_small");
        assert_eq!(one("-----BEGIN OPENSSH PRIVATE KEY-----\nabc"), REDACTED);
    }

    #[test]
    fn addresses_lose_who_asks_and_signatures() {
        for (said, kept) in [
            ("https://ada:pw@host/a?b=1", "https://host/a?b=1"),
            ("https://token@host:8080", "https://host:8080"),
            ("ssh://git@host/a", "ssh://git@host/a"),
            ("git@host:a/b", "git@host:a/b"),
            ("s3://b/k?X-Amz-Signature=ab&part=2#x", "s3://b/k?X-Amz-Signature=[redacted]&part=2#x"),
            ("https://a@b@host/", "https://host/"),
        ] {
            assert_eq!(redacted_url(said), kept);
        }
        assert_eq!(one("--data=https://u:p@h/x"), "--data=https://h/x");
    }

    #[test]
    fn the_home_directory_is_a_tilde() {
        assert_eq!(one("/home/ada/x.py"), "~/x.py");
        assert_eq!(one("--out=/home/ada"), "--out=~");
        assert_eq!(one("/home/adam/x"), "/home/adam/x");
        assert_eq!(redacted("/x", Some("/")), "/x");
    }
}
