//! git-lfs batch API: which objects the server has, and where to upload others. Hugging Face clients use it, too.

use crate::{
    auth::Scope,
    hub::{links::SECONDS, object::Named, sha256_of, site::Site},
    incoming::{Holder, Object},
    request::prelude::*,
};
use serde_json::{Value, json};

const LFS_JSON: HeaderValue = HeaderValue::from_static("application/vnd.git-lfs+json");

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Upload,
    Download,
}

#[derive(Debug, Deserialize)]
pub(super) struct Batch {
    operation: Operation,
    #[serde(default)]
    transfers: Vec<String>,
    objects: Vec<Named>,
    hash_algo: Option<String>,
}

impl Batch {
    fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(Problem::refused(why));
        if self.hash_algo.as_deref().is_some_and(|a| a != "sha256") {
            return refuse("objects go by their SHA-256");
        }
        if !self.transfers.is_empty() && !self.transfers.iter().any(|t| t == "basic") {
            return refuse("only basic transfers are known here");
        }
        Ok(())
    }
}

/// `POST /{owner}/{name}.git/info/lfs/objects/batch`.
pub(super) async fn batch(
    Read(access): Read,
    site: Site,
    headers: HeaderMap,
    Body(batch): Body<Batch>,
) -> Result<Response> {
    let access = match batch.operation {
        Operation::Download => access,
        Operation::Upload => access.app.access(access.caller, access.name, Scope::Write).await?,
    };
    batch.check()?;
    let base = site.link(&format!("/{}.git/info/lfs", access.name));
    // The caller's credentials, for the client to send with the object as well.
    let sent = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let answerer = Answerer {
        header: sent.map_or_else(|| json!({}), |sent| json!({"Authorization": sent})),
        operation: batch.operation,
        max: access.app.incoming().max_upload,
        holder: access.holder()?,
        base,
        access,
    };
    let objects = work(move || batch.objects.iter().map(|named| answerer.object(named)).collect::<Result<Vec<_>>>());
    let answer = json!({"transfer": "basic", "objects": objects.await?, "hash_algo": "sha256"});
    Ok(([(header::CONTENT_TYPE, LFS_JSON)], Json(answer)).into_response())
}

struct Answerer {
    access: Access,
    operation: Operation,
    header: Value,
    base: String,
    max: u64,
    holder: Holder,
}

impl Answerer {
    fn object(&self, named: &Named) -> Result<Value> {
        let (oid, size) = (&named.oid, named.size);
        let refuse = |code: u16, message: &str| {
            let shown: String = oid.chars().take(80).collect();
            Ok(json!({"oid": shown, "size": size, "error": {"code": code, "message": message}}))
        };
        if sha256_of(oid).is_none() {
            return refuse(422, "objects are called by their SHA-256");
        }
        let objects = &self.access.app.incoming().objects;
        let found = objects.find(&self.holder.repo, &self.access.repo, oid);
        let actions = |actions: Value| Ok(json!({"oid": oid, "size": size, "authenticated": true, "actions": actions}));
        match (self.operation, found) {
            (_, Some(Object { size: found, .. })) if found != size => refuse(422, "the object has another length"),
            (Operation::Download, None) => refuse(404, "there is no such object here"),
            (Operation::Upload, None) if size > self.max => refuse(422, "the object is too large for this server"),
            (Operation::Download, Some(_)) => {
                let href = format!("{}/objects/{oid}", self.base);
                actions(json!({"download": {"href": href, "header": self.header}}))
            }
            // No actions: there is nothing to send.
            (Operation::Upload, Some(_)) => Ok(json!({"oid": oid, "size": size})),
            (Operation::Upload, None) => actions(self.upload(oid, size)?),
        }
    }

    fn upload(&self, oid: &str, size: u64) -> Result<Value> {
        let grant = self.access.app.links().grant(&self.access.caller, &self.holder.repo, oid, size)?;
        let href = format!("{}/objects/{oid}{grant}", self.base);
        Ok(json!({
            "upload": {"href": href, "header": self.header, "expires_in": SECONDS},
            "verify": {"href": format!("{}/verify", self.base), "header": self.header},
        }))
    }
}
