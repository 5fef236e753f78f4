//! What is found of a signature.

/// What a signature is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignatureStatus {
    /// By a key of an allowed signer, over these bytes.
    Good,
    /// There is none.
    Unsigned,
    /// Over other bytes, for something else, or no signature at all.
    Bad,
    /// Right, but by a key that no allowed signer has.
    Unknown,
    /// Right, but made before or after the time for which the key counts.
    Expired,
    /// Right, but by a key that was revoked.
    Revoked,
    /// By a key of a kind that is not checked here.
    Unsupported,
}

impl SignatureStatus {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SignatureStatus::Good => "good",
            SignatureStatus::Unsigned => "unsigned",
            SignatureStatus::Bad => "bad",
            SignatureStatus::Unknown => "unknown_key",
            SignatureStatus::Expired => "expired_key",
            SignatureStatus::Revoked => "revoked_key",
            SignatureStatus::Unsupported => "unsupported_key",
        }
    }
}

/// A status, and what it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What the signature is worth.
    pub status: SignatureStatus,
    /// Patterns of principals in the line of the key; none: no line has it.
    pub principal: Option<String>,
    /// `SHA256:...` of the key; none: there is no signature that can be read.
    pub fingerprint: Option<String>,
    /// Kind of the key, such as `ssh-ed25519`.
    pub key_type: Option<String>,
    /// Why it is no better, in words.
    pub reason: Option<String>,
}

impl Verdict {
    /// Without a key.
    pub(super) fn without_key(status: SignatureStatus, reason: Option<String>) -> Verdict {
        Verdict { status, principal: None, fingerprint: None, key_type: None, reason }
    }

    /// Whether it is by an allowed signer.
    pub fn is_good(&self) -> bool {
        self.status == SignatureStatus::Good
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let key = || {
            let kind = self.key_type.as_deref().unwrap_or("ssh-key");
            let kind = kind.strip_prefix("ssh-").unwrap_or(kind).to_uppercase();
            format!("{kind} key {}", self.fingerprint.as_deref().unwrap_or("unknown"))
        };
        let who = || self.principal.as_deref().unwrap_or("somebody").to_owned();
        let reason = || self.reason.as_ref().map_or_else(String::new, |r| format!(": {r}"));
        match self.status {
            SignatureStatus::Good => format!("Good signature for {} with {}", who(), key()),
            SignatureStatus::Unsigned => "No signature".to_owned(),
            SignatureStatus::Bad => format!("BAD signature{}", reason()),
            SignatureStatus::Unknown => format!("Signature with unknown {}{}", key(), reason()),
            SignatureStatus::Expired => format!("Signature for {} with {}{}", who(), key(), reason()),
            SignatureStatus::Revoked => format!("Signature with REVOKED {}", key()),
            SignatureStatus::Unsupported => format!("Signature that is not checked, with {}{}", key(), reason()),
        }
    }
}
