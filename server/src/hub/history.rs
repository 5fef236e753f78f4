//! Commits of a model as the Hugging Face clients list them, and which one last changed a file. Neighbours: `mdl-repo` walks. It must
//! not know what is in a file.

use super::{
    files::{self, Found},
    info::date,
    short,
    site::{Site, encoded, next},
};
use crate::{
    app::work,
    auth::Read,
    extract::{Path, Query},
    problem::Result,
    revision,
};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use mdl_objects::{Commit, Id};
use mdl_repo::{Repo, Step};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Commits on a page, if nobody asks for another number, and at most.
const PAGE: usize = 50;
const MAX_PAGE: usize = 1000;
/// How long the commits that last changed a page's files are looked for.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Deserialize)]
pub(super) struct At {
    rev: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommitsQuery {
    p: Option<usize>,
    limit: Option<usize>,
    #[serde(rename = "expand[]")]
    expand: Option<String>,
}

#[derive(Debug, Serialize)]
struct Author {
    user: String,
}

#[derive(Debug, Serialize)]
struct Formatted {
    title: String,
    message: String,
}

/// A commit in the list.
#[derive(Debug, Serialize)]
struct Item {
    id: String,
    title: String,
    message: String,
    authors: Vec<Author>,
    date: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    formatted: Option<Formatted>,
}

/// The commit that last changed a file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Last {
    id: String,
    title: String,
    date: String,
}

/// A message's first line, and what follows it.
fn title_and_rest(message: &str) -> (&str, &str) {
    let (title, rest) = message.split_once('\n').unwrap_or((message, ""));
    (title.trim_end(), rest.trim_matches('\n'))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn item(step: &Step, formatted: bool) -> Item {
    let (title, message) = title_and_rest(&step.commit.message);
    Item {
        id: short(&step.id),
        title: title.to_owned(),
        message: message.to_owned(),
        authors: vec![Author {
            user: step.commit.author.name.clone(),
        }],
        date: date(step.commit.author.time_ms),
        formatted: formatted.then(|| Formatted {
            title: escaped(title),
            message: escaped(message),
        }),
    }
}

/// `GET /api/models/{owner}/{name}/commits/{rev}`, the newest first.
pub(super) async fn list(
    Read(access): Read,
    site: Site,
    Path(at): Path<At>,
    Query(query): Query<CommitsQuery>,
) -> Result<Response> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let (page, formatted) = (query.p.unwrap_or(0), query.expand.as_deref() == Some("formatted"));
    let repo = access.repo;
    let (start, mut items) = work(move || {
        let start = revision::resolve(&repo, &at.rev)?;
        // One more than fits, to know whether there is a next page.
        let steps = repo.history(&[start])?.skip(page.saturating_mul(limit)).take(limit + 1);
        let items = steps.map(|s| s.map(|s| item(&s, formatted)));
        Ok((start, items.collect::<mdl_repo::Result<Vec<Item>>>()?))
    })
    .await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let mut response = Json(items).into_response();
    if more {
        let expand = if formatted { "&expand%5B%5D=formatted" } else { "" };
        let link = format!(
            "/api/models/{}/commits/{}?p={}&limit={limit}{expand}",
            access.name,
            encoded(&short(&start)),
            page.saturating_add(1)
        );
        let (name, value) = next(&site.link(&link))?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// For each file or directory of a version the commit that made it what it is, going back along first parents; none where that
/// takes too long to find.
pub(super) fn last_commits(repo: &Repo, start: Id, found: &[Found]) -> Result<Vec<Option<Last>>> {
    let end = Instant::now() + PATIENCE;
    let odb = repo.odb();
    let mut out: Vec<Option<Last>> = vec![None; found.len()];
    let mut open: Vec<usize> = (0..found.len()).collect();
    let (mut id, mut commit) = (start, odb.commit(&start)?);
    while !open.is_empty() && Instant::now() < end {
        let parent = match commit.parents.first() {
            Some(parent) => Some((*parent, odb.commit(parent)?)),
            None => None,
        };
        let mut same = Vec::new();
        for i in open {
            let Some((path, entry)) = found.get(i) else { continue };
            let before = match &parent {
                Some((_, parent)) => files::find(odb, &parent.tree, path)?,
                None => None,
            };
            if before.is_some_and(|b| b.id == entry.id) {
                same.push(i);
            } else if let Some(last) = out.get_mut(i) {
                *last = Some(last_of(&id, &commit));
            }
        }
        open = same;
        match parent {
            Some(parent) => (id, commit) = parent,
            None => break,
        }
    }
    Ok(out)
}

fn last_of(id: &Id, commit: &Commit) -> Last {
    Last {
        id: short(id),
        title: title_and_rest(&commit.message).0.to_owned(),
        date: date(commit.author.time_ms),
    }
}
