//! Versions as in-toto statements (in-toto Attestation Framework, Statement v1): SLSA provenance v1, and the model
//! signing format v1.0 of OpenSSF.

use crate::{
    provenance::{Code, Dataset, Provenance},
    pruned::files,
    repo::Repo,
};
use mdl_objects::{Commit, Entry, Id};
use mdl_store::{Progress, Result, progress::go_on};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What a statement says of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predicate {
    /// How it was made: <https://slsa.dev/provenance/v1>.
    #[default]
    Provenance,
    /// Which files it has: <https://model_signing/signature/v1.0>.
    ModelSigning,
}

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the statement";
const STATEMENT: &str = "https://in-toto.io/Statement/v1";

/// The statement of a version, about the files that it gives today, each by its SHA-256, and what its provenance
/// says. Files whose digest is not remembered are read.
///
/// # Errors
/// The version's contents are gone, absent or damaged; its provenance is no such record; `Stopped`.
pub fn statement(repo: &Repo, id: &Id, name: &str, predicate: Predicate, progress: &dyn Progress) -> Result<Value> {
    let commit = repo.odb().commit(id)?;
    let found = files(repo, id)?;
    progress.begin("hashing", found.values().map(|entry| entry.size).sum());
    let mut digests = Vec::with_capacity(found.len());
    for (path, entry) in &found {
        go_on(progress, WHAT)?;
        digests.push((path.as_str(), sha256(repo, entry, progress)?));
    }
    progress.end();
    Ok(without_nulls(match predicate {
        Predicate::Provenance => {
            provenance(id, &commit, &digests, &Provenance::from_commit(&commit)?.unwrap_or_default())
        }
        Predicate::ModelSigning => model_signing(name, &digests),
    }))
}

/// Leaves out members that are not known, as in-toto's readers want it.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
        ),
        Value::Array(all) => Value::Array(all.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn sha256(repo: &Repo, entry: &Entry, progress: &dyn Progress) -> Result<[u8; 32]> {
    if let Some(known) = repo.odb().digest(&entry.id).filter(|d| d.len == entry.size) {
        progress.advance(entry.size);
        return Ok(known.sha256);
    }
    let mut hash = Sha256::new();
    repo.odb().stream_files(entry, progress, &mut |bytes| {
        hash.update(bytes);
        progress.advance(bytes.len() as u64);
        Ok(())
    })?;
    Ok(hash.finalize().into())
}

fn provenance(id: &Id, commit: &Commit, digests: &[(&str, [u8; 32])], said: &Provenance) -> Value {
    let subject: Vec<Value> =
        digests.iter().map(|(path, sha)| json!({"name": path, "digest": {"sha256": hex::encode(sha)}})).collect();
    let parent = |p: &Id| json!({"name": "parent", "uri": format!("mdl:{p}"), "digest": {"mdlCommit": p.to_hex()}});
    let mut used: Vec<Value> = said.code.iter().map(code).collect();
    used.extend(said.datasets.iter().map(dataset));
    used.extend(commit.parents.iter().map(parent));
    let date = jiff::Timestamp::from_millisecond(commit.author.time_ms).map(|t| t.to_string()).ok();
    json!({
        "_type": STATEMENT,
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:mdl:training:v1",
                "externalParameters": {"command": said.command, "step": commit.step, "epoch": commit.epoch},
                "internalParameters": {
                    "environment": said.environment,
                    "dirty": said.code.as_ref().and_then(|c| c.dirty),
                },
                "resolvedDependencies": used,
            },
            "runDetails": {
                // Nobody but the author says so.
                "builder": {"id": "urn:mdl:author", "version": {"mdl": said.environment.mdl}},
                "metadata": {"invocationId": format!("mdl:{id}"), "finishedOn": date},
                "byproducts": [{"name": "commit", "digest": {"mdlCommit": id.to_hex()}}],
            },
        },
    })
}

fn code(code: &Code) -> Value {
    let uri = code.remote.as_ref().map(|remote| format!("git+{remote}@{}", code.revision));
    json!({"name": "code", "uri": uri, "digest": {"gitCommit": code.revision},
        "annotations": {"directory": code.directory}})
}

fn dataset(set: &Dataset) -> Value {
    json!({"name": set.name, "uri": set.uri, "digest": set.digest})
}

/// The subject's digest is the SHA-256 of the files' digests in the order of their names.
fn model_signing(name: &str, digests: &[(&str, [u8; 32])]) -> Value {
    let root = digests.iter().fold(Sha256::new(), |hash, (_, sha)| hash.chain_update(sha));
    let resources: Vec<Value> = digests
        .iter()
        .map(|(path, sha)| json!({"name": path, "algorithm": "sha256", "digest": hex::encode(sha)}))
        .collect();
    json!({
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": hex::encode(root.finalize())}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": false, "ignore_paths": []},
            "resources": resources,
        },
    })
}
