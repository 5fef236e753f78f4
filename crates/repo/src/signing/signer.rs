//! The signer: a private key in a file, in an ssh-agent, or in the hands of ssh-keygen.

use crate::signing::{MAX_KEY, NAMESPACE, agent::Agent, expanded, keygen, text_of};
use mdl_store::{RepoError, Result};
use ssh_key::{HashAlg, LineEnding, PrivateKey, PublicKey, SshSig, public::KeyData};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Prefix of a public key that is written out where a file could be named, as with git.
const LITERAL: &str = "key::";

/// A key that signs.
#[derive(Clone)]
pub struct Signer {
    public: PublicKey,
    how: How,
}

#[derive(Clone)]
enum How {
    /// With the key that was read.
    Key(Box<PrivateKey>),
    /// With the agent that has it.
    Agent,
    /// With ssh-keygen, which asks for what it needs.
    Keygen(PathBuf),
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.fingerprint())
    }
}

fn no_key(what: &str, hint: &str) -> RepoError {
    RepoError::user(what, hint)
}

const MAKE: &str = "make one with `ssh-keygen -t ed25519`, and name its file";

/// Whether signatures of such keys are made and checked here.
pub(super) fn is_usable(key: &KeyData) -> bool {
    match key {
        KeyData::Ed25519(_) | KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_) => true,
        KeyData::Ecdsa(key) => matches!(key, ssh_key::public::EcdsaPublicKey::NistP256(_)),
        _ => false,
    }
}

fn refuse_unusable(key: &KeyData, what: &str) -> Result<()> {
    match is_usable(key) {
        true => Ok(()),
        false => {
            Err(no_key(&format!("{what} is a key of the kind {}, which does not sign here", key.algorithm()), MAKE))
        }
    }
}

impl Signer {
    /// The signer that a setting or an option names: the file of a private or public key, or a public key written out
    /// (`key::ssh-ed25519 AAAA...`), whose private half an agent has.
    ///
    /// # Errors
    /// There is no such key; its kind does not sign here; no agent has the private half.
    pub fn load(name: &str) -> Result<Signer> {
        let literal = name.strip_prefix(LITERAL).or_else(|| name.starts_with("ssh-").then_some(name));
        if let Some(text) = literal {
            let public =
                PublicKey::from_openssh(text.trim()).map_err(|e| no_key(&format!("no public key: {e}"), MAKE))?;
            return Signer::by_agent(public, name);
        }
        let path = expanded(name);
        let text = text_of(&path, MAX_KEY)?;
        if text.trim_start().starts_with("-----BEGIN") {
            return Signer::of_private(&path, &text);
        }
        let public = PublicKey::from_openssh(text.trim());
        let public = public.map_err(|e| no_key(&format!("{} is no key: {e}", path.display()), MAKE))?;
        // The private half may lie beside it, as ssh-keygen puts it.
        let beside = path.with_extension("");
        let by_agent = Signer::by_agent(public, name);
        match by_agent {
            Err(_) if beside != path && beside.is_file() => Signer::of_private(&beside, &text_of(&beside, MAX_KEY)?),
            done => done,
        }
    }

    fn by_agent(public: PublicKey, name: &str) -> Result<Signer> {
        refuse_unusable(public.key_data(), name)?;
        let hint = "load it with `ssh-add`, or name the file of the private key";
        match Agent::connect() {
            None => Err(no_key(&format!("{name} is a public key, and there is no ssh-agent"), hint)),
            Some(mut agent) => match agent.has(&public)? {
                true => Ok(Signer { public, how: How::Agent }),
                false => Err(no_key(&format!("the ssh-agent does not have the key {name}"), hint)),
            },
        }
    }

    fn of_private(path: &Path, text: &str) -> Result<Signer> {
        let read = PrivateKey::from_openssh(text);
        let key = read.map_err(|e| no_key(&format!("{} is no OpenSSH private key: {e}", path.display()), MAKE))?;
        let public = PublicKey::from(key.public_key().key_data().clone());
        refuse_unusable(public.key_data(), &path.display().to_string())?;
        let data = public.key_data();
        if !key.is_encrypted() && (data.is_ed25519() || data.is_ecdsa()) {
            return Ok(Signer { public, how: How::Key(Box::new(key)) });
        }
        let is_loaded = Agent::connect().is_some_and(|mut agent| agent.has(&public).unwrap_or(false));
        let how = if is_loaded { How::Agent } else { How::Keygen(path.to_owned()) };
        Ok(Signer { public, how })
    }

    /// The public key, as OpenSSH writes it.
    pub fn public_key(&self) -> String {
        self.public.to_openssh().unwrap_or_default()
    }

    /// `SHA256:...`
    pub fn fingerprint(&self) -> String {
        self.public.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The armoured signature of these bytes in the namespace of this program; it has been checked.
    ///
    /// # Errors
    /// The agent or ssh-keygen refuses, or signs with another key.
    pub fn sign(&self, bytes: &[u8]) -> Result<String> {
        self.sign_in(NAMESPACE, bytes)
    }

    /// The plain Ed25519 signature of these bytes: 64 bytes, as other tools than OpenSSH check them. An armoured one is
    /// also over a namespace, which keeps this from passing for one.
    ///
    /// # Errors
    /// The key is none of Ed25519, or only ssh-keygen can use it; the agent refuses.
    pub fn sign_plainly(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let odd = |e: &dyn fmt::Display| RepoError::user(format!("the key did not sign: {e}"), MAKE);
        if !self.public.key_data().is_ed25519() {
            return Err(no_key("envelopes are signed with Ed25519 keys, and this is none", MAKE));
        }
        let signature = match &self.how {
            How::Key(key) => signature::Signer::try_sign(key.as_ref(), bytes).map_err(|e| odd(&e))?,
            How::Agent => {
                let gone = || no_key("the ssh-agent is gone", "start it again, and load the key with `ssh-add`");
                Agent::connect().ok_or_else(gone)?.sign(&self.public, bytes)?
            }
            How::Keygen(_) => {
                let hint = "load it into an ssh-agent with `ssh-add`";
                return Err(no_key("the key has a passphrase, and envelopes are not signed by ssh-keygen", hint));
            }
        };
        let checked = signature::Verifier::verify(self.public.key_data(), bytes, &signature);
        checked.map_err(|e| odd(&e))?;
        Ok(signature.as_bytes().to_vec())
    }

    fn sign_in(&self, namespace: &str, bytes: &[u8]) -> Result<String> {
        let odd = |e: ssh_key::Error| RepoError::user(format!("the key did not sign: {e}"), MAKE);
        let signature = match &self.how {
            How::Key(key) => key.sign(namespace, HashAlg::Sha512, bytes).map_err(odd)?,
            How::Agent => {
                let data = SshSig::signed_data(namespace, HashAlg::Sha512, bytes).map_err(odd)?;
                let gone = || no_key("the ssh-agent is gone", "start it again, and load the key with `ssh-add`");
                let signed = Agent::connect().ok_or_else(gone)?.sign(&self.public, &data)?;
                SshSig::new(self.public.key_data().clone(), namespace, HashAlg::Sha512, signed).map_err(odd)?
            }
            How::Keygen(path) => SshSig::from_pem(keygen::sign(path, bytes)?).map_err(odd)?,
        };
        // A signature that does not hold must not get into a version.
        self.public.verify(namespace, bytes, &signature).map_err(odd)?;
        signature.to_pem(LineEnding::LF).map_err(odd)
    }
}
