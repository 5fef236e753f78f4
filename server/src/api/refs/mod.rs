//! Route `GET .../refs`: lists branches and tags.

pub(super) mod moving;

use crate::{
    api::entry::{Person, rfc3339},
    request::prelude::*,
};
use mdl_objects::Kind as ObjectKind;

/// Refs on a page: by default, and at most.
const PAGE: usize = 1000;
const MAX_PAGE: usize = 10_000;
/// Bytes of refs and tags' messages on a page.
const PAGE_BYTES: usize = 4 << 20;

/// Branches or tags.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Heads,
    Tags,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Kind::Heads => HEADS,
            Kind::Tags => TAGS,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Heads => "branch",
            Kind::Tags => "tag",
        }
    }

    const fn missing(self) -> Missing {
        match self {
            Kind::Heads => Missing::Branch,
            Kind::Tags => Missing::Tag,
        }
    }
}

/// Where HEAD is.
#[derive(Debug, Serialize, ToSchema)]
struct HeadInfo {
    /// The branch it is on; none: it is on a commit by itself.
    branch: Option<String>,
    /// The commit it stands on; none: there is no commit yet.
    commit: Option<String>,
}

/// What an annotated tag says.
#[derive(Debug, Serialize, ToSchema)]
struct TagInfo {
    message: String,
    /// Whether the message is longer than what is shown here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    tagger: Person,
    /// When: RFC 3339.
    date: String,
}

/// A branch or tag.
#[derive(Debug, Serialize, ToSchema)]
struct RefInfo {
    /// Its full name.
    #[schema(example = "refs/heads/main")]
    name: String,
    kind: Kind,
    /// Its name as people write it.
    short: String,
    /// What it holds: `expected` of a move.
    target: String,
    /// The commit it stands on, also where it holds an annotated tag; none: that cannot be read.
    commit: Option<String>,
    /// The annotated tag, if it is one.
    tag: Option<TagInfo>,
}

/// Some branches and tags.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RefsPage {
    head: HeadInfo,
    /// By full name.
    refs: Vec<RefInfo>,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The `next` of the page before: a full name.
    after: Option<String>,
    /// Refs a page.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
}

/// List the branches and tags, and where HEAD is
#[utoipa::path(get, path = "/refs", tag = "refs", params(ListQuery), responses((status = 200, body = RefsPage)))]
pub(super) async fn list(Read(access): Read, Query(query): Query<ListQuery>) -> Result<Json<RefsPage>> {
    work(move || {
        let repo = &*access.repo;
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let branch = revision::head_branch(repo)?;
        let mut all = Vec::new();
        for kind in [Kind::Heads, Kind::Tags] {
            let mut found = repo.refs().list(kind.prefix())?;
            found.sort();
            all.extend(found.into_iter().map(|(short, id)| (format!("{}{short}", kind.prefix()), kind, short, id)));
        }
        all.retain(|r| query.after.as_ref().is_none_or(|after| r.0 > *after));
        let (mut refs, mut left) = (Vec::new(), PAGE_BYTES);
        let mut all = all.into_iter();
        while refs.len() < limit && left > 0 {
            let Some((name, kind, short, id)) = all.next() else {
                break;
            };
            let found = info(repo, name, kind, short, &id);
            left = left.saturating_sub(found.bytes());
            refs.push(found);
        }
        let next = all.next().and_then(|_| refs.last()).map(|r| r.name.clone());
        Ok(Json(RefsPage {
            head: HeadInfo { commit: repo.refs().head_commit()?.map(|id| id.to_hex()), branch },
            refs,
            next,
        }))
    })
    .await
}

fn info(repo: &Repo, name: String, kind: Kind, short: String, id: &Id) -> RefInfo {
    // One that is damaged must not hide the others.
    let commit = mdl_repo::peel(repo, id).ok().map(|id| id.to_hex());
    let located = matches!(kind, Kind::Tags).then(|| repo.odb().locate(id).ok().flatten()).flatten();
    let tag = located.filter(|l| l.record.kind == ObjectKind::Tag).and_then(|_| repo.odb().tag(id).ok());
    RefInfo {
        name,
        kind,
        short,
        target: id.to_hex(),
        commit,
        tag: tag.map(|mut t| TagInfo {
            cut: mdl_objects::shorten(&mut t.message, mdl_objects::MAX_MESSAGE),
            tagger: Person::from(&t.tagger),
            date: rfc3339(t.tagger.time_ms, t.tagger.utc_offset_min),
            message: t.message,
        }),
    }
}

impl RefInfo {
    /// How much of it there is.
    fn bytes(&self) -> usize {
        self.name.len() + self.tag.as_ref().map_or(0, |t| t.message.len()) + 300
    }
}
