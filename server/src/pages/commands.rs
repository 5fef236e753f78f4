//! Code snippets to copy: how to load this version from the CLI, Python and other programs.

use crate::{app::App, middleware::proxies::base_url, pages::text, registry::RepoName};
use http::HeaderMap;
use maud::{Markup, html};

/// Returns the base URL of this server for other users.
pub fn origin(app: &App, headers: &HeaderMap) -> String {
    base_url(app.options(), headers).unwrap_or_else(|_| format!("http://{}", app.options().listen))
}

/// Quotes a word for a shell.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a text for Python.
fn python(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

fn all(origin: &str, name: &RepoName, rev: &str, file: Option<&str>) -> Vec<(&'static str, String)> {
    let (repo, shown) = (name.to_string(), shell(rev));
    let file = file.unwrap_or("model.safetensors");
    let raw = format!("{origin}/{repo}/resolve/{}/{}", text::segment(rev), text::path(file));
    vec![
        ("Hugging Face CLI", format!("HF_ENDPOINT={origin} hf download {repo} --revision {shown}")),
        (
            "transformers",
            format!(
                "# with HF_ENDPOINT={origin} in the environment\nmodel = AutoModel.from_pretrained({}, revision={})",
                python(&repo),
                python(rev)
            ),
        ),
        ("mdl", format!("mdl clone {origin}/{repo}")),
        ("curl", format!("curl -LO {}", shell(&raw))),
    ]
}

/// The commands for a version, each with a button.
pub fn show(origin: &str, name: &RepoName, rev: &str, file: Option<&str>) -> Markup {
    html! {
        section aria-labelledby="use" {
            h2 #use { "Use this version" }
            dl.commands {
                @for (i, (title, command)) in all(origin, name, rev, file).iter().enumerate() {
                    dt { (title) }
                    dd {
                        pre tabindex="0" { code #{ "command-" (i) } { (command) } }
                        button.small type="button" data-copy={ "command-" (i) } aria-label={ "Copy the command for " (title) } hidden { "Copy" }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_who_reads_them() {
        assert_eq!(shell("main"), "main");
        assert_eq!(shell("a'b $(x)"), r"'a'\''b $(x)'");
        assert_eq!(python("a\"b\\"), r#""a\"b\\""#);
        let name: RepoName = "ada/gpt".parse().expect("a name");
        let made = all("http://h", &name, "fix/'x'", None);
        assert!(made.iter().any(|(_, c)| c.ends_with(r"--revision 'fix/'\''x'\'''")), "{made:?}");
        assert!(made.iter().any(|(_, c)| c.ends_with("resolve/fix%2F%27x%27/model.safetensors")), "{made:?}");
    }
}
