//! Page `/`: the repositories that the caller may see.

use crate::{
    auth::{Caller, Scope, is_open},
    pages::prelude::*,
};
use mdl_repo::Head;
use std::sync::Arc;

/// Repositories a page.
const PAGE: usize = 50;
const COLUMNS: [&str; 5] = ["Repository", "Branch", "Last commit", "#Size", "When"];

#[derive(Debug, Deserialize)]
pub struct Asked {
    after: Option<String>,
}

struct Row {
    name: RepoName,
    /// Where HEAD is; none: it cannot be read.
    about: Option<About>,
    open: bool,
}

struct About {
    branch: String,
    last: Option<Commit>,
}

fn about(repo: &Repo) -> mdl_repo::Result<About> {
    let branch = match repo.refs().head()? {
        Head::Branch(b) => b,
        Head::Detached(id) => id.short(),
    };
    let head = repo.refs().head_commit()?;
    let last = head.map(|id| repo.odb().commit(&id)).transpose()?;
    Ok(About { branch, last })
}

/// Rows of a page, and whether there are more.
fn gather(app: &App, caller: &Caller, after: Option<&str>) -> Result<(Vec<Row>, bool)> {
    let names = app.registry().list()?.into_iter();
    let names = names.filter(|name| after.is_none_or(|after| name.to_string().as_str() > after));
    let mut found = app.readable(caller, names);
    let row = |(name, repo): (RepoName, Arc<Repo>)| Row { name, about: about(&repo).ok(), open: is_open(&repo) };
    let rows = found.by_ref().take(PAGE).map(row).collect();
    Ok((rows, found.next().is_some()))
}

/// `GET /`
pub async fn show(State(app): State<App>, caller: Caller, Query(asked): Query<Asked>) -> Result<Response> {
    let (asks, after) = (caller.clone(), asked.after.clone());
    let (rows, more) = work(move || gather(&app, &asks, after.as_deref())).await?;
    let next = rows.last().filter(|_| more);
    let next = next.map(|r| format!("/?after={}", text::segment(&r.name.to_string())));
    let content = html! {
        h1 { "Repositories" }
        @if rows.is_empty() { (nothing(&caller)) } @else {
            @let lines = html! { @for row in &rows { (line(row)) } };
            (table("Repositories", "wide", "Repositories, by name", &COLUMNS, &lines))
            (pager("Pages of repositories", asked.after.as_ref().map(|_| "/"), next.as_deref()))
            @if caller.is_anonymous() && !caller.may_everywhere(Scope::Read) {
                p.muted { a href="/login" { "Sign in" } " to see those that are not open to all." }
            }
        }
    };
    Ok(page(&Frame::plain("Repositories", Some(&caller)), &content))
}

fn nothing(caller: &Caller) -> Markup {
    html! {
        @if caller.is_anonymous() && !caller.may_everywhere(Scope::Read) {
            p { "No repository is open to all." }
            p { a.button href="/login" { "Sign in with a token" } }
        } @else {
            p { "There is no repository here that you may see." }
            p.muted { "One is made with " code { "POST /api/v1/repos" } ", or by pushing to it." }
        }
    }
}

fn line(row: &Row) -> Markup {
    let last = row.about.as_ref().and_then(|a| a.last.as_ref());
    html! {
        tr {
            th scope="row" {
                a href=(base(&row.name)) { span.owner { (row.name.owner()) "/" } b { (row.name.name()) } }
                @if row.open { " " span.label { "open to all" } }
            }
            @match (&row.about, last) {
                (None, _) => td colspan="4" { span.bad { "cannot be read" } },
                (Some(about), None) => {
                    td { (text::name(&about.branch)) }
                    td colspan="3" { span.muted { "no commits yet" } }
                }
                (Some(about), Some(commit)) => {
                    td { (text::name(&about.branch)) }
                    td.cut { (text::subject(&commit.message)) }
                    td.num { (text::size(commit.summary.logical_bytes)) }
                    td { (text::time(commit.author.time_ms)) }
                }
            }
        }
    }
}
