//! Judges signatures by the lists of allowed signers and of revoked keys.

use crate::{
    config::Config,
    repo::Repo,
    signing::{
        AllowedSigners, NAMESPACE, RevokedKeys, SignatureStatus, Verdict,
        allowed::{AllowedSigner, matches_list},
        expanded,
        signer::is_usable,
    },
};
use mdl_objects::{Commit, Id, Kind, Tag};
use mdl_store::{Missing, RepoError, Result, error::bad_object, object_db::Odb};
use ssh_key::{HashAlg, PublicKey, SshSig};
use std::path::Path;

/// The kind and the fingerprint of the key that a signature names; what the signature is worth is not looked at.
pub fn signing_key(signature: &str) -> Option<(String, String)> {
    let signature = SshSig::from_pem(signature.trim_start()).ok()?;
    let key = signature.public_key();
    Some((key.algorithm().to_string(), key.fingerprint(HashAlg::Sha256).to_string()))
}

/// Whose signatures count.
#[derive(Clone, Debug, Default)]
pub struct Signers {
    allowed: AllowedSigners,
    revoked: RevokedKeys,
    /// Whether a list of allowed ones was named.
    named: bool,
    /// Principals that count; none: all.
    only: Option<Vec<String>>,
}

impl Signers {
    /// Reads the lists in these files.
    ///
    /// # Errors
    /// A list that cannot be read, or with a line that makes no sense.
    pub fn read(allowed: Option<&Path>, revoked: Option<&Path>) -> Result<Signers> {
        Ok(Signers {
            allowed: allowed.map(AllowedSigners::read).transpose()?.unwrap_or_default(),
            revoked: revoked.map(RevokedKeys::read).transpose()?.unwrap_or_default(),
            named: allowed.is_some(),
            only: None,
        })
    }

    /// These lists.
    pub(crate) fn of_lists(allowed: AllowedSigners, revoked: RevokedKeys) -> Signers {
        Signers { allowed, revoked, named: true, only: None }
    }

    /// Reads the lists that the settings name (`gpg.ssh.allowedSignersFile`, `gpg.ssh.revocationFile`).
    pub fn configured(config: &Config) -> Result<Signers> {
        Signers::configured_but(config, None, None)
    }

    /// As `configured`, with other lists in place of those that are given.
    pub fn configured_but(config: &Config, allowed: Option<&Path>, revoked: Option<&Path>) -> Result<Signers> {
        let list = |given: Option<&Path>, key| {
            given.map(Path::to_owned).or_else(|| config.get(key).map(|name| expanded(&name)))
        };
        let allowed = list(allowed, "gpg.ssh.allowedSignersFile");
        Signers::read(allowed.as_deref(), list(revoked, "gpg.ssh.revocationFile").as_deref())
    }

    /// Those whose lines name one of these principals.
    #[must_use]
    pub fn only(mut self, principals: &[String]) -> Signers {
        self.only = Some(principals.to_vec());
        self
    }

    fn counts(&self, line: &AllowedSigner) -> bool {
        self.only.as_ref().is_none_or(|names| names.iter().any(|name| matches_list(&line.principals, name)))
    }

    /// Judges the signature of these bytes, made at `time_ms` (milliseconds since 1970).
    pub fn judge(&self, signature: Option<&str>, bytes: &[u8], time_ms: i64) -> Verdict {
        let Some(text) = signature else { return Verdict::without_key(SignatureStatus::Unsigned, None) };
        let bad = |why: String| Verdict::without_key(SignatureStatus::Bad, Some(why));
        let signature = match SshSig::from_pem(text.trim_start()) {
            Ok(signature) => signature,
            Err(e) => return bad(format!("it is no SSH signature: {e}")),
        };
        let key = PublicKey::from(signature.public_key().clone());
        let found = Verdict {
            fingerprint: Some(key.fingerprint(HashAlg::Sha256).to_string()),
            key_type: Some(key.algorithm().to_string()),
            ..Verdict::without_key(SignatureStatus::Bad, None)
        };
        let with = |status, reason: Option<String>| Verdict { status, reason, ..found.clone() };
        if !is_usable(key.key_data()) {
            let why = "keys of this kind are not checked here; use Ed25519".to_owned();
            return with(SignatureStatus::Unsupported, Some(why));
        }
        if let Err(e) = key.verify(NAMESPACE, bytes, &signature) {
            let why = match e {
                ssh_key::Error::Namespace => format!("it is for {:?}, not for {NAMESPACE:?}", signature.namespace()),
                _ => "it is not of these bytes".to_owned(),
            };
            return with(SignatureStatus::Bad, Some(why));
        }
        if self.revoked.has(key.key_data()) {
            return with(SignatureStatus::Revoked, None);
        }
        self.of_right_one(&key, time_ms, &with)
    }

    /// Who has the key of a signature that is right.
    fn of_right_one(
        &self,
        key: &PublicKey,
        time_ms: i64,
        with: &dyn Fn(SignatureStatus, Option<String>) -> Verdict,
    ) -> Verdict {
        let has_key = |line: &&AllowedSigner| line.key == *key.key_data();
        let lines: Vec<&AllowedSigner> = self.allowed.iter().filter(has_key).filter(|l| self.counts(l)).collect();
        let fits: Vec<&AllowedSigner> = lines.iter().copied().filter(|line| line.is_for(NAMESPACE)).collect();
        let of = |line: &AllowedSigner, status, reason| Verdict {
            principal: Some(line.principals.clone()),
            ..with(status, reason)
        };
        let late = |line: &AllowedSigner| line.valid_before.filter(|end| time_ms >= *end);
        let early = |line: &AllowedSigner| line.valid_after.filter(|begin| time_ms < *begin);
        if let Some(line) = fits.iter().find(|line| late(line).is_none() && early(line).is_none()) {
            return of(line, SignatureStatus::Good, None);
        }
        match (fits.first(), lines.first()) {
            (Some(line), _) => {
                let why = match (late(line), early(line)) {
                    (Some(end), _) => format!("the key expired on {}", day(end)),
                    (_, Some(begin)) => format!("the key counts only from {} on", day(begin)),
                    _ => "the key does not count".to_owned(),
                };
                of(line, SignatureStatus::Expired, Some(why))
            }
            (None, Some(line)) => {
                let why = format!("its line in the list of allowed signers is not for {NAMESPACE:?}");
                of(line, SignatureStatus::Unknown, Some(why))
            }
            (None, None) if !self.named => {
                let why = "no list of allowed signers is named (gpg.ssh.allowedSignersFile)".to_owned();
                with(SignatureStatus::Unknown, Some(why))
            }
            (None, None) => with(SignatureStatus::Unknown, Some("no allowed signer has it".to_owned())),
        }
    }
}

/// `2026-11-21 12:30 UTC`
fn day(time_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(time_ms);
    time.map_or_else(|_| format!("{time_ms} ms"), |t| t.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// The commit as it is stored, and what its signature is worth at the time that it names.
///
/// # Errors
/// There is no such commit, or its bytes are not what its id says; an I/O error.
pub fn verify_commit(repo: &Repo, id: &Id, signers: &Signers) -> Result<(Commit, Verdict)> {
    judge_commit(repo.odb(), id, signers, None)
}

/// As `verify_commit`, at another time than the commit names.
pub(crate) fn judge_commit(odb: &Odb, id: &Id, signers: &Signers, at: Option<i64>) -> Result<(Commit, Verdict)> {
    let bytes = odb.read(id, Kind::Commit)?;
    if Id::from_content(Kind::Commit, &bytes) != *id {
        return Err(RepoError::corrupt(format!("commit {}", id.short()), "its bytes are not what its id says"));
    }
    let commit = Commit::decode(&bytes).map_err(bad_object(id))?;
    let verdict =
        signers.judge(commit.signature.as_deref(), &commit.signed_bytes(), at.unwrap_or(commit.author.time_ms));
    Ok((commit, verdict))
}

/// The annotated tag of this name, and what its signature is worth at the time that it names.
///
/// # Errors
/// There is no such tag, or it is a plain name; an I/O error.
pub fn verify_tag(repo: &Repo, name: &str, signers: &Signers) -> Result<(Id, Tag, Verdict)> {
    let missing = || RepoError::not_found(Missing::Tag, name);
    let full = mdl_store::refs::RefName::tag(name).map_err(|_| missing())?;
    let id = repo.refs().get(&full)?.ok_or_else(missing)?;
    if repo.odb().need(&id, Missing::Tag)?.record.kind != Kind::Tag {
        return Err(RepoError::user(
            format!("tag {name} is a plain name: it can have no signature"),
            "its commit can: see `verify-commit`",
        ));
    }
    // A tag says which name it was made for: under another one it is somebody else's word.
    let (tag, mut verdict) = judge_tag(repo.odb(), &id, signers, None)?;
    if tag.name != name && tag.signature.is_some() {
        let reason = Some(format!("it was made for the tag {}", tag.name));
        verdict = Verdict { status: SignatureStatus::Bad, reason, ..verdict };
    }
    Ok((id, tag, verdict))
}

/// An annotated tag, and what its signature is worth, by default at the time that it names.
pub(crate) fn judge_tag(odb: &Odb, id: &Id, signers: &Signers, at: Option<i64>) -> Result<(Tag, Verdict)> {
    let bytes = odb.read(id, Kind::Tag)?;
    let tag = Tag::decode(&bytes).map_err(bad_object(id))?;
    let time_ms = at.unwrap_or(tag.tagger.time_ms);
    let verdict = signers.judge(tag.signature.as_deref(), &tag.signed_bytes(), time_ms);
    Ok((tag, verdict))
}
