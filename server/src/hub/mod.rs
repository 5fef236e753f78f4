//! Routes of the Hugging Face Hub API, of git-lfs, and of uploads by the Xet protocol.
//!
//! Commit ids go out cut to 40 hex digits: that is what these clients take for a commit that cannot change, and the
//! only form in which they let a parent commit be named. Every revision that is asked for may be such a prefix. What is
//! sent is cut from `cache_id`: a version that an approximation stands for has another hash than it had.

mod changes;
mod commit;
mod files;
mod history;
mod info;
mod lfs;
mod links;
mod object;
mod preupload;
mod raw;
mod refs;
mod repos;
mod resolve;
mod site;
mod tree;
pub(crate) mod xet;

pub(crate) use files::{find, sha256_of};
pub(crate) use links::Links;

use crate::request::{
    revision::HASH_DIGITS,
    routes::{Need, Routes},
};
use mdl_objects::Id;

/// Shortens an id as these clients see it.
fn short(id: &Id) -> String {
    let mut hex = id.to_hex();
    hex.truncate(HASH_DIGITS);
    hex
}

/// Routes.
pub fn routes() -> Routes {
    const MODEL: &str = "/api/models/{owner}/{name}";
    const LFS: &str = "/{owner}/{name}/info/lfs";
    let model = |rest: &str| format!("{MODEL}{rest}");
    let lfs = |rest: &str| format!("{LFS}{rest}");
    Routes::new()
        .get(Need::Known, "/api/whoami-v2", repos::who_am_i)
        .post(Need::AdminOfNamed, "/api/repos/create", repos::create)
        .post(Need::Anyone, "/api/validate-yaml", repos::validate)
        .get(Need::Anyone, "/api/models", info::list)
        .get(Need::Anyone, "/api/models/{owner}", info::without_owner)
        .get(Need::Read, MODEL, info::info)
        .get(Need::Read, &model("/revision/{rev}"), info::info)
        .get(Need::Read, &model("/auth-check"), repos::may_read)
        .get(Need::Write, &model("/auth-check/write"), repos::may_write)
        .get(Need::Read, &model("/tree/{rev}"), tree::below)
        .get(Need::Read, &model("/tree/{rev}/"), tree::below)
        .get(Need::Read, &model("/tree/{rev}/{*path}"), tree::below)
        .post(Need::Read, &model("/paths-info/{rev}"), tree::paths)
        .get(Need::Read, &model("/refs"), refs::list)
        .get(Need::Read, &model("/commits/{rev}"), history::list)
        .post(Need::Write, &model("/branch/{branch}"), refs::create_branch)
        .delete(Need::Write, &model("/branch/{branch}"), refs::delete_branch)
        .post(Need::Write, &model("/tag/{rev}"), refs::create_tag)
        .delete(Need::Write, &model("/tag/{rev}"), refs::delete_tag)
        .post(Need::Write, &model("/preupload/{rev}"), preupload::modes)
        .post(Need::Write, &model("/commit/{rev}"), commit::commit)
        .get(Need::Write, &model("/xet-write-token/{rev}"), xet::write_token)
        .get(Need::Read, "/{owner}/{name}/resolve/{rev}/{*path}", resolve::file)
        .post(Need::Read, &lfs("/objects/batch"), lfs::batch)
        .get(Need::Read, &lfs("/objects/{oid}"), object::download)
        .put(Need::WriteOrLink, &lfs("/objects/{oid}"), object::upload)
        .post(Need::Write, &lfs("/verify"), object::verify)
        .post(Need::Write, &lfs("/xet/{session}/v1/xorbs/default/{hash}"), xet::put_xorb)
        .post(Need::Write, &lfs("/xet/{session}/v1/shards"), xet::put_shard)
}
