//! Versions as in-toto statements (in-toto Attestation Framework, Statement v1): SLSA provenance v1, and the model
//! signing format v1.0 of OpenSSF.

use crate::{
    provenance::{Code, Dataset, Provenance},
    pruned::{files, pruned},
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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct StatementRequest<'a> {
    /// What is said.
    pub predicate: Predicate,
    /// What a model signing statement calls the model.
    pub name: &'a str,
    /// Whether all files are read and hashed, as one that is signed wants it: the digests that the index remembers are
    /// safe from damage, and not from malice.
    pub anew: bool,
}

/// The statement of a version, about the files that it gives today, each by its SHA-256, and what its provenance says.
///
/// # Errors
/// The version's contents are gone, absent or damaged; its provenance is of another version; `Stopped`.
pub fn statement(repo: &Repo, id: &Id, asked: &StatementRequest<'_>, progress: &dyn Progress) -> Result<Value> {
    let commit = repo.odb().commit(id)?;
    let found = files(repo, id)?;
    progress.begin("hashing", found.values().map(|entry| entry.size).sum());
    let mut digests = Vec::with_capacity(found.len());
    for (path, entry) in &found {
        go_on(progress, WHAT)?;
        digests.push((path.as_str(), sha256(repo, entry, asked.anew, progress)?));
    }
    progress.end();
    Ok(without_nulls(match asked.predicate {
        Predicate::Provenance => {
            let fidelity = pruned(repo)?.fidelity(repo.odb(), id, &commit)?.name();
            let version = json!({
                "name": format!("mdl:{id}"),
                "digest": {"mdlCommit": id.to_hex()},
                "annotations": {"fidelity": fidelity},
            });
            provenance(id, &commit, (version, &digests), &Provenance::from_commit(&commit)?.unwrap_or_default())
        }
        Predicate::ModelSigning => model_signing(asked.name, &digests),
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

fn sha256(repo: &Repo, entry: &Entry, anew: bool, progress: &dyn Progress) -> Result<[u8; 32]> {
    if let Some(known) = repo.odb().digest(&entry.id).filter(|d| d.len == entry.size && !anew) {
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

fn provenance(id: &Id, commit: &Commit, (version, digests): (Value, &[(&str, [u8; 32])]), said: &Provenance) -> Value {
    let file = |(path, sha): &(&str, [u8; 32])| json!({"name": path, "digest": {"sha256": hex::encode(sha)}});
    let subject: Vec<Value> = digests.iter().map(file).chain([version]).collect();
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
                // The author says so, and no service that built it.
                "builder": {"id": "urn:mdl:author", "version": {"mdl": said.environment.mdl}},
                "metadata": {"invocationId": format!("mdl:{id}"), "finishedOn": date},
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

/// The subject's digest is the SHA-256 of the files' digests in the order of their paths' parts.
fn model_signing(name: &str, digests: &[(&str, [u8; 32])]) -> Value {
    let mut digests = digests.to_vec();
    digests.sort_by_key(|(path, _)| path.split('/').collect::<Vec<_>>());
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
