//! Protected branches: rules that every move of a ref is held against, whatever asks for it.

use crate::signing::{AllowedSigners, RevokedKeys, Signers, judge_commit, judge_tag};
use globset::{GlobBuilder, GlobMatcher};
use jiff::Timestamp;
use mdl_objects::{Id, Kind};
use mdl_store::{
    Missing, RefGuard, Refusal, RepoError, Result, Store,
    refs::{HEADS, REFS, RefName, TAGS},
};
use serde::Deserialize;
use std::{collections::HashSet, fs, path::Path, sync::Arc};

/// A file of rules, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    allowed_signers: Option<String>,
    revoked_keys: Option<String>,
    #[serde(default)]
    branch: Vec<WrittenRule>,
    #[serde(default)]
    tag: Vec<WrittenRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    name: String,
    #[serde(default)]
    repositories: Vec<String>,
    #[serde(default)]
    signed: bool,
    #[serde(default)]
    principals: Vec<String>,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    delete: bool,
}

/// What holds for refs whose full names match.
#[derive(Clone, Debug)]
struct Rule {
    refs: GlobMatcher,
    repositories: Vec<GlobMatcher>,
    /// Whose signatures count; none: none is wanted.
    signers: Option<Signers>,
    may_rewind: bool,
    may_delete: bool,
}

/// The rules of a server.
#[derive(Clone, Debug, Default)]
pub struct Protection(Vec<Rule>);

/// Those for one repository.
#[derive(Debug)]
struct Guarded(Vec<Rule>);

fn glob(text: &str) -> Result<GlobMatcher> {
    let built = GlobBuilder::new(text).literal_separator(true).build();
    built.map(|g| g.compile_matcher()).map_err(|e| RepoError::usage(format!("{e}"), "patterns are as in `release/*`"))
}

impl Protection {
    /// Reads a file of rules, and the lists that it names, beside it.
    ///
    /// # Errors
    /// It is not understood; it wants signatures and names no list of signers; an I/O error.
    pub fn read(path: &Path) -> Result<Protection> {
        let refused = |why: String| {
            RepoError::usage(format!("{}: {why}", path.display()), "see docs/serve.md, Protected branches")
        };
        let text = fs::read_to_string(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
        let written: Written = toml::from_str(&text).map_err(|e| refused(e.to_string().trim_end().to_owned()))?;
        let beside = |name: &String| path.parent().unwrap_or(Path::new("")).join(name);
        let allowed = written.allowed_signers.as_ref().map(beside);
        let revoked = written.revoked_keys.as_ref().map(beside);
        let lists = (
            allowed.as_deref().map(AllowedSigners::read).transpose()?,
            revoked.as_deref().map(RevokedKeys::read).transpose()?.unwrap_or_default(),
        );
        let mut rules = Vec::new();
        for (prefix, all) in [(HEADS, written.branch), (TAGS, written.tag)] {
            for rule in all {
                let signers = match (rule.signed || !rule.principals.is_empty(), &lists.0) {
                    (false, _) => None,
                    (true, None) => return Err(refused("`signed` wants `allowed_signers`".to_owned())),
                    (true, Some(allowed)) => {
                        let signers = Signers::of_lists(allowed.clone(), lists.1.clone());
                        Some(if rule.principals.is_empty() { signers } else { signers.only(&rule.principals) })
                    }
                };
                rules.push(Rule {
                    refs: glob(&format!("{prefix}{}", rule.name))?,
                    repositories: rule.repositories.iter().map(|r| glob(r)).collect::<Result<_>>()?,
                    signers,
                    may_rewind: rule.force,
                    may_delete: rule.delete || rule.force,
                });
            }
        }
        Ok(Protection(rules))
    }

    /// The guard of a repository of this name; none: no rule is for it.
    pub fn guard(&self, repository: &str) -> Option<Arc<dyn RefGuard>> {
        let is_for = |rule: &&Rule| {
            rule.repositories.is_empty() || rule.repositories.iter().any(|pattern| pattern.is_match(repository))
        };
        let rules: Vec<Rule> = self.0.iter().filter(is_for).cloned().collect();
        (!rules.is_empty()).then(|| Arc::new(Guarded(rules)) as Arc<dyn RefGuard>)
    }
}

impl RefGuard for Guarded {
    fn check(&self, store: &Store, name: &RefName, old: Option<Id>, new: Option<Id>) -> Result<()> {
        for rule in self.0.iter().filter(|rule| rule.refs.is_match(name.as_str())) {
            let refused = |refusal| RepoError::Protected { name: short(name), refusal: Box::new(refusal) };
            match (old, new) {
                (Some(_), None) if !rule.may_delete => return Err(refused(Refusal::Deletion)),
                (Some(old), Some(new)) if old != new && !rule.may_rewind => {
                    let is_tag = name.starts_with(TAGS);
                    if is_tag || !history(store, [new], &HashSet::new())?.contains(&old) {
                        return Err(refused(Refusal::Rewind { old, new }));
                    }
                }
                _ => {}
            }
            if let (Some(signers), Some(new)) = (&rule.signers, new)
                && let Some((commit, why)) = self.unsigned(store, signers, name, old, new)?
            {
                return Err(refused(Refusal::Unsigned { commit, why }));
            }
        }
        Ok(())
    }
}

/// `main`, or `tag v1`.
fn short(name: &RefName) -> String {
    match (name.strip_prefix(HEADS), name.strip_prefix(TAGS)) {
        (Some(branch), _) => format!("branch {branch}"),
        (_, Some(tag)) => format!("tag {tag}"),
        _ => name.to_string(),
    }
}

impl Guarded {
    /// The first object that is new to what rules like this guard and that no allowed signer signed, and why.
    fn unsigned(
        &self,
        store: &Store,
        signers: &Signers,
        name: &RefName,
        old: Option<Id>,
        new: Id,
    ) -> Result<Option<(Id, String)>> {
        // By this clock, not by the date that the signer chose: a key that expired signs nothing more.
        let now = Timestamp::now().as_millisecond();
        let odb = store.odb();
        let mut tip = new;
        if odb.need(&new, Missing::Commit)?.record.kind == Kind::Tag {
            let (tag, verdict) = judge_tag(odb, &new, signers, Some(now))?;
            if verdict.is_good() {
                return Ok(None);
            }
            if tag.signature.is_some() {
                return Ok(Some((new, verdict.text())));
            }
            tip = tag.target;
        }
        // A tag vouches for its version, wherever that is already, and the version's signature for what leads to it.
        let judged = match name.starts_with(TAGS) {
            true => vec![tip],
            false => history(store, [tip], &self.known(store, old)?)?,
        };
        for id in judged {
            let (_, verdict) = judge_commit(odb, &id, signers, Some(now))?;
            if !verdict.is_good() {
                return Ok(Some((id, verdict.text())));
            }
        }
        Ok(None)
    }

    /// Versions that were on a ref that wants signatures before: they were judged then, or are older than the rule.
    fn known(&self, store: &Store, old: Option<Id>) -> Result<HashSet<Id>> {
        let mut starts: Vec<Id> = old.into_iter().collect();
        for (name, id) in store.refs().list(REFS.as_str())? {
            let full = format!("{}{name}", REFS.as_str());
            if self.0.iter().any(|rule| rule.signers.is_some() && rule.refs.is_match(&full)) {
                starts.push(id);
            }
        }
        let mut commits = Vec::new();
        for id in starts {
            match store.odb().need(&id, Missing::Commit)?.record.kind {
                Kind::Commit => commits.push(id),
                Kind::Tag => commits.push(store.odb().tag(&id)?.target),
                _ => {}
            }
        }
        history(store, commits, &HashSet::new()).map(|all| all.into_iter().collect())
    }
}

/// These commits and those before them, without what is known.
fn history(store: &Store, starts: impl IntoIterator<Item = Id>, known: &HashSet<Id>) -> Result<Vec<Id>> {
    let (mut seen, mut out) = (HashSet::new(), Vec::new());
    let mut stack: Vec<Id> = starts.into_iter().collect();
    while let Some(id) = stack.pop() {
        if !known.contains(&id) && seen.insert(id) {
            stack.extend(&store.odb().commit(&id)?.parents);
            out.push(id);
        }
    }
    Ok(out)
}
