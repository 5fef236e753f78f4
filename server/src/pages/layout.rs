//! Layout of every page around its content: landmarks, breadcrumbs, tabs of a repository, who is signed in.

use crate::{
    auth::Caller,
    pages::{assets, text},
    registry::RepoName,
};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

/// Parts of a repository's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Overview,
    Files,
    Commits,
    Compare,
}

#[derive(Debug)]
pub struct Frame<'a> {
    /// Title of the window.
    pub title: String,
    /// The repository that the page is about, and its part.
    pub repo: Option<(&'a RepoName, Tab)>,
    /// The revision that tabs lead to.
    pub rev: Option<&'a str>,
    /// The caller; none: unknown (error pages).
    pub caller: Option<&'a Caller>,
    /// Seconds until the page reloads.
    pub refresh: Option<u32>,
}

impl<'a> Frame<'a> {
    pub fn plain(title: impl Into<String>, caller: Option<&'a Caller>) -> Frame<'a> {
        Frame { title: title.into(), repo: None, rev: None, caller, refresh: None }
    }

    pub fn new(title: &str, name: &'a RepoName, tab: Tab, rev: Option<&'a str>, caller: &'a Caller) -> Frame<'a> {
        Frame {
            title: match title {
                "" => name.to_string(),
                title => format!("{title} \u{b7} {name}"),
            },
            repo: Some((name, tab)),
            rev,
            caller: Some(caller),
            refresh: None,
        }
    }
}

/// Returns the base path of a repository's pages.
pub fn base(name: &RepoName) -> String {
    format!("/{}/{}", text::segment(name.owner()), text::segment(name.name()))
}

pub fn page(frame: &Frame<'_>, content: &Markup) -> Response {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(seconds) = frame.refresh { meta http-equiv="refresh" content=(seconds); }
                title { (frame.title) " \u{b7} mdl" }
                link rel="stylesheet" href=(assets::style_url());
                link rel="icon" href="data:,";
                script src=(assets::script_url()) defer {}
            }
            body {
                a.skip href="#content" { "Skip to content" }
                (header(frame))
                main #content tabindex="-1" { (content) }
                footer { "mdl " (env!("CARGO_PKG_VERSION")) " \u{b7} " a href="/api/v1/openapi.json" { "API" } }
                p #status .hidden role="status" {}
            }
        }
    };
    Html(document.into_string()).into_response()
}

fn header(frame: &Frame<'_>) -> Markup {
    html! {
        header {
            div.bar {
                nav aria-label="Path" {
                    a.brand href="/" { "mdl" }
                    @if let Some((name, _)) = frame.repo {
                        span.sep aria-hidden="true" { "/" }
                        a.crumb href=(base(name)) { span.owner { (name.owner()) "/" } (name.name()) }
                    }
                }
                (who(frame.caller))
            }
            @if let Some((name, tab)) = frame.repo { (tabs(name, tab, frame.rev)) }
        }
    }
}

fn tabs(name: &RepoName, current: Tab, rev: Option<&str>) -> Markup {
    let (base, rev) = (base(name), text::segment(rev.unwrap_or("HEAD")));
    let all = [
        (Tab::Overview, "Overview", base.clone()),
        (Tab::Files, "Files", format!("{base}/tree/{rev}")),
        (Tab::Commits, "Commits", format!("{base}/commits/{rev}")),
        (Tab::Compare, "Compare", format!("{base}/compare")),
    ];
    html! {
        nav.tabs aria-label="Repository" {
            @for (tab, title, url) in all {
                a href=(url) aria-current=[(tab == current).then_some("page")] { (title) }
            }
        }
    }
}

fn who(caller: Option<&Caller>) -> Markup {
    html! {
        div.who {
            @match caller.and_then(Caller::token) {
                Some(token) => {
                    span.name title="Signed in with this token" { (text::name(&token.name)) }
                    form method="post" action="/logout" { button.plain type="submit" { "Sign out" } }
                }
                None => a href="/login" { "Sign in" },
            }
        }
    }
}

/// A table with these columns (`#Size`: of numbers; empty: without a name), in a box of its own, in which it scrolls.
pub fn table(label: &str, class: &str, caption: &str, columns: &[impl AsRef<str>], rows: &Markup) -> Markup {
    let table = html! {
        table class=[Some(class).filter(|c| !c.is_empty())] {
            caption.hidden { (caption) }
            thead { tr { @for column in columns {
                @let column: &str = column.as_ref();
                @if let Some(column) = column.strip_prefix('#') { th.num scope="col" { (column) } }
                @else if column.is_empty() { td {} }
                @else { th scope="col" { (column) } }
            } } }
            tbody { (rows) }
        }
    };
    scroll(label, &table)
}

/// What is too wide for a page, in a box of its own, in which it scrolls.
pub fn scroll(label: &str, table: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="group" aria-label=(label) { (table) } }
}

/// Place of the first row of the page after the one that begins at `start`.
pub fn after(start: usize, page: usize, all: usize) -> Option<usize> {
    Some(start.saturating_add(page)).filter(|next| *next < all)
}

/// Links to the pages before and after.
pub fn pager(what: &str, first: Option<&str>, next: Option<&str>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav.pager aria-label=(what) {
                @if let Some(url) = first { a href=(url) { "\u{2190} First page" } }
                @if let Some(url) = next { a href=(url) rel="next" { "Next page \u{2192}" } }
            }
        }
    }
}
