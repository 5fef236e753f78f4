//! Model card: a README's front matter as a table, its Markdown as sanitised HTML.

use crate::pages::{layout::scroll, text};
use ammonia::Builder;
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::borrow::Cow;

/// Longest card that is rendered.
pub const MAX: u64 = 512 << 10;
/// Longest front matter, and lines of it that are shown.
const MAX_MATTER: usize = 32 << 10;
const MAX_LINES: usize = 60;
/// Most nested elements: beyond this a card is shown as text. HTML parsers search all open elements.
const MAX_DEPTH: usize = 40;
/// Tags of raw HTML in a card, all in all: beyond this they are left out.
const MAX_RAW: usize = 3000;

/// A card, split.
#[derive(Debug, PartialEq, Eq)]
pub struct Card<'a> {
    /// Keys and values of the front matter.
    pub matter: Vec<(String, String)>,
    /// The Markdown behind it.
    pub body: &'a str,
}

impl<'a> Card<'a> {
    /// Splits off the front matter.
    pub fn parse(source: &'a str) -> Card<'a> {
        let source = source.trim_start_matches('\u{feff}');
        let Some((matter, body)) = front_matter(source) else {
            return Card { matter: Vec::new(), body: source };
        };
        Card { matter: pairs(matter), body }
    }

    /// Renders it; `links` says where the repository's files are.
    pub fn show(&self, links: &Links) -> Markup {
        html! {
            @if !self.matter.is_empty() { (self.table()) }
            @match rendered(self.body, links) {
                Some(html) => div.card { (PreEscaped(html)) },
                None => pre.text tabindex="0" { (text::clipped(self.body, 100_000)) },
            }
        }
    }

    fn table(&self) -> Markup {
        scroll(
            "Facts of the model card",
            &html! {
                table.facts {
                    caption.hidden { "Front matter of the model card" }
                    tbody { @for (key, value) in &self.matter {
                        tr { th scope="row" { (text::name(key)) } td { (text::clipped(value, 400)) } }
                    } }
                }
            },
        )
    }
}

/// The YAML between lines of dashes at the top, and what follows.
fn front_matter(source: &str) -> Option<(&str, &str)> {
    let rest = source.strip_prefix("---")?;
    let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'))?;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if matches!(line.trim_end(), "---" | "...") {
            return Some((rest.get(..at)?, rest.get(at + line.len()..)?));
        }
        at += line.len();
        if at > MAX_MATTER {
            return None;
        }
    }
    None
}

/// Keys that stand at the line's front, with all that is below them as text. That is not all of YAML, but what cards
/// have.
fn pairs(matter: &str) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for line in matter.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let starts = !line.starts_with([' ', '\t', '-']);
        match line.split_once(':').filter(|_| starts) {
            Some((key, value)) if out.len() < MAX_LINES => out.push((key.trim().to_owned(), listed(value))),
            Some(_) => break,
            None => {
                if let Some((_, all)) = out.last_mut() {
                    let separator = if all.is_empty() { "" } else { ", " };
                    let item = line.trim().trim_start_matches("- ");
                    all.push_str(&format!("{separator}{}", plain(item)));
                }
            }
        }
    }
    out
}

/// A value, or those of a list in brackets.
fn listed(value: &str) -> String {
    match value.trim().strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
        Some(inner) => inner.split(',').map(plain).collect::<Vec<_>>().join(", "),
        None => plain(value),
    }
}

fn plain(value: &str) -> String {
    let value = value.trim();
    let unquoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    unquoted.unwrap_or(value).to_owned()
}

/// URLs of a repository's files.
#[derive(Clone, Debug)]
pub struct Links {
    /// Page of a file: `/ada/gpt/blob/main/`.
    pub page: String,
    /// Bytes of a file: `/ada/gpt/resolve/main/`.
    pub raw: String,
}

impl Links {
    /// Resolves a link of a card. None: no link.
    fn link(&self, target: &str) -> Option<String> {
        if target.starts_with('#') || is_elsewhere(target) {
            return Some(target.to_owned());
        }
        inside(target).map(|path| format!("{}{path}", self.page))
    }

    /// Resolves an image. None: not in the repository, and pages load nothing from elsewhere.
    fn image(&self, target: &str) -> Option<String> {
        inside(target).map(|path| format!("{}{path}", self.raw))
    }
}

fn is_elsewhere(target: &str) -> bool {
    let lower = target.trim_start().to_ascii_lowercase();
    ["https://", "http://", "mailto:"].iter().any(|scheme| lower.starts_with(scheme))
}

/// A relative path, as a link has it; none where it leaves the repository or names another scheme.
fn inside(target: &str) -> Option<String> {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    let decoded = percent_encoding::percent_decode_str(target).decode_utf8().ok()?;
    let path = decoded.strip_prefix("./").unwrap_or(&decoded);
    let odd = |part: &str| {
        part.is_empty()
            || part == "."
            || part == ".."
            || part.contains([':', '\\'])
            || part.chars().any(char::is_control)
    };
    (!path.split('/').any(odd)).then(|| text::path(path))
}

/// Safe HTML of Markdown; none if it nests too deep.
fn rendered(body: &str, links: &Links) -> Option<String> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS | Options::ENABLE_FOOTNOTES;
    let raw = body.matches('<').count() <= MAX_RAW;
    let (mut depth, mut deepest) = (0usize, 0usize);
    let events = Parser::new_ext(body, options).filter(|event| {
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
        deepest <= MAX_DEPTH && (raw || !matches!(event, Event::Html(_) | Event::InlineHtml(_)))
    });
    let events = events.map(|mut event| {
        if let Event::Start(Tag::Heading { level, .. }) | Event::End(TagEnd::Heading(level)) = &mut event {
            // The card is below a heading of the second level.
            *level = HeadingLevel::try_from(*level as usize + 2).unwrap_or(HeadingLevel::H6);
        }
        event
    });
    let mut html = String::with_capacity(body.len() * 3 / 2);
    pulldown_cmark::html::push_html(&mut html, events);
    (deepest <= MAX_DEPTH).then(|| clean(&html, links.clone()))
}

fn clean(html: &str, links: Links) -> String {
    let mut builder = Builder::default();
    builder
        // Headings of raw HTML would be out of order; forms of tasks are disabled boxes, which need no input.
        .rm_tags(["h1", "h2", "map", "area"])
        .url_schemes(["http", "https", "mailto"].into())
        .link_rel(Some("nofollow noopener noreferrer"))
        .attribute_filter(move |element, attribute, value| match (element, attribute) {
            ("a", "href") => links.link(value).map(Cow::Owned),
            ("img", "src") => links.image(value).map(Cow::Owned),
            (_, "cite" | "longdesc" | "background") => None,
            _ => Some(Cow::Borrowed(value)),
        });
    builder.clean(html).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links { page: "/ada/gpt/blob/main/".to_owned(), raw: "/ada/gpt/resolve/main/".to_owned() }
    }

    fn show(source: &str) -> String {
        Card::parse(source).show(&links()).into_string()
    }

    #[test]
    fn front_matter_becomes_a_table() {
        let source = "---\nlicense: mit\ntags:\n- a\n- \"b\"\nsets: [x, 'y']\nempty:\n---\n# Hello\n";
        let card = Card::parse(source);
        let want = [("license", "mit"), ("tags", "a, b"), ("sets", "x, y"), ("empty", "")];
        assert_eq!(card.matter, want.map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(card.body, "# Hello\n");
        for odd in ["---", "---\nx: y", "", "--- x\n---\n"] {
            assert!(Card::parse(odd).matter.is_empty(), "{odd:?}");
        }
        assert!(show(source).contains("<h3>Hello</h3>"), "{}", show(source));
    }

    #[test]
    fn nothing_in_a_card_runs() {
        let hostile = "---\n<script>a</script>: <script>b</script>\n---\n\
            <script>alert(1)</script> <img src=x onerror=alert(1)> <svg onload=alert(1)></svg> <style>*{}</style>\n\n\
            [x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) ![z](data:text/html,x) <a href=\"vbscript:x\">v</a>\n\n\
            <iframe src=\"https://evil.example\"></iframe><form action=\"/logout\"><input></form> \
            <math><mtext></mtext><script>2</script></math> <p style=\"x\" class=\"bar\" id=\"content\">t</p>\n\n\
            ```<script>\n<script>3</script>\n```\n";
        let shown = show(hostile).to_lowercase();
        for bad in [
            "<script",
            "onerror=",
            "onload=",
            "javascript:",
            "vbscript:",
            "<iframe",
            "<form",
            "<input",
            "<svg",
            "<style",
            "style=",
            "data:text",
            "id=\"content",
        ] {
            assert!(!shown.contains(bad), "{bad}: {shown}");
        }
    }

    #[test]
    fn links_stay_in_the_repository_or_say_where_they_go() {
        let cases = [
            ("[a](docs/x y.md)", None),
            ("[a](<docs/x y.md>)", Some("href=\"/ada/gpt/blob/main/docs/x%20y.md\"")),
            ("[a](./LICENSE#top)", Some("href=\"/ada/gpt/blob/main/LICENSE\"")),
            ("![a](img/plot.png)", Some("src=\"/ada/gpt/resolve/main/img/plot.png\"")),
            ("<img src='img/plot.png'>", Some("src=\"/ada/gpt/resolve/main/img/plot.png\"")),
            ("[a](https://example.org/x)", Some("href=\"https://example.org/x\"")),
            ("[a](../../other/repo)", None),
            ("[a](//evil.example/x)", None),
            ("[a](/logout)", None),
            ("[a](%2e%2e/x)", None),
            ("![a](https://tracker.example/x.png)", None),
        ];
        for (source, want) in cases {
            let shown = show(source);
            match want {
                Some(want) => assert!(shown.contains(want), "{source}: {shown}"),
                None => assert!(!shown.contains("href=") && !shown.contains("src="), "{source}: {shown}"),
            }
        }
    }

    #[test]
    fn deep_and_long_cards_cost_little() {
        let deep = ">".repeat(100_000);
        assert!(show(&deep).contains("<pre"));
        let tags = "<div>".repeat(100_000);
        assert!(!show(&tags).contains("<div><div><div>"));
        let list: String = (0..2000).map(|i| format!("{}- x\n", "  ".repeat(i % 100))).collect();
        show(&list);
    }
}
