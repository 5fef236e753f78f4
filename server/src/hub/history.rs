//! Hub route `GET .../commits/{rev}`: the history of a model; and which commit last changed a file.

use crate::{
    hub::{
        files::{self, PathEntry},
        info::date,
        short,
        site::Site,
    },
    request::{
        prelude::*,
        today::{cache_id, comparable},
    },
};
use mdl_repo::Step;
use std::time::{Duration, Instant};

/// Commits on a page: by default, and at most.
const PAGE: usize = 50;
const MAX_PAGE: usize = 1000;
/// Bytes of messages on a page: a longer one comes alone.
const PAGE_BYTES: usize = 4 << 20;
/// Characters of a title at most.
const TITLE: usize = 1000;
/// How long to search for the commits that last changed a page's files.
const SEARCH_LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Deserialize)]
pub(super) struct CommitsQuery {
    p: Option<usize>,
    /// Commits to step over, as the link to the next page says: a page may end before its limit.
    skip: Option<usize>,
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
pub(super) struct LastCommit {
    id: String,
    title: String,
    date: String,
}

/// A message's first line, and what follows it.
fn title_and_rest(message: &str) -> (&str, &str) {
    let (title, rest) = message.split_once('\n').unwrap_or((message, ""));
    let end = title.char_indices().nth(TITLE).map_or(title.len(), |(at, _)| at);
    (title[..end].trim_end(), rest.trim_matches('\n'))
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

impl Item {
    /// Its size, for the page limit.
    fn bytes(&self) -> usize {
        let formatted = self.formatted.as_ref().map_or(0, |f| f.title.len() + f.message.len());
        let authors = self.authors.iter().map(|a| a.user.len()).sum::<usize>();
        200 + self.title.len() + self.message.len() + formatted + authors
    }
}

fn item(mut step: Step, known_as: &Id, formatted: bool) -> Item {
    step.commit.shorten();
    let (title, message) = title_and_rest(&step.commit.message);
    Item {
        id: short(known_as),
        title: title.to_owned(),
        message: message.to_owned(),
        authors: vec![Author { user: step.commit.author.name.clone() }],
        date: date(step.commit.author.time_ms),
        formatted: formatted.then(|| Formatted { title: escaped(title), message: escaped(message) }),
    }
}

/// `GET /api/models/{owner}/{name}/commits/{rev}`, the newest first.
pub(super) async fn list(
    Read(access): Read,
    site: Site,
    Path(at): Path<AtRev>,
    Query(query): Query<CommitsQuery>,
) -> Result<Response> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let formatted = query.expand.as_deref() == Some("formatted");
    let first = query.skip.unwrap_or(query.p.unwrap_or(0).saturating_mul(limit));
    let listed = access.work(move |repo| {
        let start = revision::resolve(repo, &at.rev)?;
        let mut steps = mdl_repo::history(repo, &[start])?.skip(first);
        let (mut items, mut left, mut versions) = (Vec::new(), PAGE_BYTES, Versions::new(repo));
        // One more than fits, to know whether there is a next page.
        while let Some(step) = steps.next().transpose()? {
            let tree = versions.tree(&step.id, &step.commit)?;
            let known_as = cache_id(&step.id, &step.commit, &tree);
            let item = item(step, &known_as, formatted);
            let rest = left.checked_sub(item.bytes());
            if items.len() == limit || (rest.is_none() && !items.is_empty()) {
                return Ok((start, items, true));
            }
            items.push(item);
            left = rest.unwrap_or(0);
        }
        Ok((start, items, false))
    });
    let (start, items, more) = listed.await?;
    let after = first.saturating_add(items.len());
    let expand = if formatted { "&expand%5B%5D=formatted" } else { "" };
    let (name, start) = (access.name, short(&start));
    let next = more.then(|| format!("/api/models/{name}/commits/{start}?skip={after}&limit={limit}{expand}"));
    site.page(items, next)
}

/// Finds for each file or directory of a version the commit that last changed it, along first parents; none where the
/// search takes too long.
pub(super) fn last_commits(repo: &Repo, start: Id, found: &[PathEntry]) -> Result<Vec<Option<LastCommit>>> {
    let end = Instant::now() + SEARCH_LIMIT;
    let (odb, mut versions) = (repo.odb(), Versions::new(repo));
    let mut out: Vec<Option<LastCommit>> = vec![None; found.len()];
    // Places in `found`, and what the version has there.
    let mut open: Vec<(usize, Id)> = found.iter().map(|(_, entry)| entry.id).enumerate().collect();
    let mut version = versions.read(start)?;
    while !open.is_empty() && Instant::now() < end {
        let parent = version.commit.parents.first().map(|parent| versions.read(*parent)).transpose()?;
        let at = |tree: &Id, path: &str| Ok::<_, RepoError>(files::find(odb, tree, path)?.map(|e| e.id));
        let mut same = Vec::new();
        for (i, id) in open {
            let Some((path, _)) = found.get(i) else { continue };
            let mut before = None;
            if let Some(parent) = &parent {
                let (old, new) = comparable(parent, &version);
                let here = if new == version.tree { Some(id) } else { at(&new, path)? };
                let there = at(&old, path)?.filter(|id| here == Some(*id));
                before = if old == parent.tree { there } else { there.and(at(&parent.tree, path)?) };
            }
            if let Some(before) = before {
                same.push((i, before));
            } else if let Some(last) = out.get_mut(i) {
                *last = Some(last_of(&version));
            }
        }
        open = same;
        match parent {
            Some(parent) => version = parent,
            None => break,
        }
    }
    Ok(out)
}

fn last_of(version: &Version) -> LastCommit {
    let Commit { message, author, .. } = &version.commit;
    let title = title_and_rest(message).0.to_owned();
    LastCommit { id: short(&version.cache_id()), title, date: date(author.time_ms) }
}
