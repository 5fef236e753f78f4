//! Hub routes for branches and tags: list, create, delete.

use crate::{hub::short, request::prelude::*};

#[derive(Debug, Serialize)]
struct Ref {
    name: String,
    r#ref: String,
    #[serde(rename = "targetCommit")]
    target_commit: String,
}

/// All refs, grouped as the clients expect.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AllRefs {
    branches: Vec<Ref>,
    converts: Vec<Ref>,
    tags: Vec<Ref>,
    pull_requests: Vec<Ref>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AtBranch {
    branch: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NewBranch {
    starting_point: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NewTag {
    tag: String,
    message: Option<String>,
}

fn below(repo: &Repo, prefix: &str) -> Result<Vec<Ref>> {
    let (mut out, mut versions) = (Vec::new(), Versions::new(repo));
    for (name, _) in repo.refs().list(prefix)? {
        let full = format!("{prefix}{name}");
        let target = revision::resolve(repo, &full)?;
        out.push(Ref { name, r#ref: full, target_commit: short(&versions.cache_id(target)?) });
    }
    Ok(out)
}

/// `GET /api/models/{owner}/{name}/refs`.
pub(super) async fn list(Read(access): Read) -> Result<Json<AllRefs>> {
    work(move || {
        Ok(Json(AllRefs {
            branches: below(&access.repo, HEADS)?,
            converts: Vec::new(),
            tags: below(&access.repo, TAGS)?,
            pull_requests: Vec::new(),
        }))
    })
    .await
}

/// `POST /api/models/{owner}/{name}/branch/{branch}`.
pub(super) async fn create_branch(
    Write(access): Write,
    Path(at): Path<AtBranch>,
    Body(new): Body<NewBranch>,
) -> Result<()> {
    work(move || {
        let repo = &access.repo;
        let full = RefName::branch(&at.branch)?;
        let default = revision::head_branch(repo)?;
        if repo.refs().head_commit()?.is_none() {
            let message = "there is no commit yet that a branch could start from";
            return Err(Problem::conflict(message).hint("commit to the branch: that makes it"));
        }
        // `main` is what the clients call the branch that HEAD is on.
        let is_default = at.branch == "main" && default.is_some();
        if is_default || repo.refs().get(&full)?.is_some() {
            return Err(Problem::conflict(format!("branch {:?} exists already", at.branch)));
        }
        let start = revision::resolve(repo, new.starting_point.as_deref().unwrap_or("HEAD"))?;
        mdl_repo::move_ref(repo, &full, None, Some(start), access.signature(), "branch: made over HTTP")?;
        access.moved(&full, None, Some(start));
        Ok(())
    })
    .await
}

/// `DELETE /api/models/{owner}/{name}/branch/{branch}`.
pub(super) async fn delete_branch(Write(access): Write, Path(at): Path<AtBranch>) -> Result<()> {
    delete(access, HEADS, at.branch).await
}

/// `DELETE /api/models/{owner}/{name}/tag/{tag}`.
pub(super) async fn delete_tag(Write(access): Write, Path(at): Path<AtRev>) -> Result<()> {
    delete(access, TAGS, at.rev).await
}

async fn delete(access: Access, prefix: &'static str, name: String) -> Result<()> {
    work(move || {
        let full = RefName::parse(&format!("{prefix}{name}"))?;
        let now = access.repo.refs().get(&full)?;
        let now = now.ok_or_else(|| Problem::not_found("revision", &name).code("RevisionNotFound"))?;
        mdl_repo::move_ref(&access.repo, &full, Some(now), None, access.signature(), "deleted over HTTP")?;
        access.moved(&full, Some(now), None);
        Ok(())
    })
    .await
}

/// `POST /api/models/{owner}/{name}/tag/{rev}`: tags a revision.
pub(super) async fn create_tag(Write(access): Write, Path(at): Path<AtRev>, Body(new): Body<NewTag>) -> Result<()> {
    work(move || {
        let repo = &access.repo;
        let full = RefName::tag(&new.tag)?;
        if repo.refs().get(&full)?.is_some() {
            return Err(Problem::conflict(format!("tag {:?} exists already", new.tag)));
        }
        let target = revision::resolve(repo, &at.rev)?;
        let held = match new.message.as_deref().filter(|m| !m.is_empty()) {
            Some(message) => mdl_repo::create_tag(repo, &new.tag, &target, Some(message), false)?,
            None => {
                mdl_repo::move_ref(repo, &full, None, Some(target), access.signature(), "tag: made over HTTP")?;
                target
            }
        };
        access.moved(&full, None, Some(held));
        Ok(())
    })
    .await
}
