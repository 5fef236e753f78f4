//! Length limits of commits and tags, and how longer ones are shown.
//!
//! New commits and tags are bounded; those made before there were bounds are read as they are, and cut where many are
//! shown.

use crate::{Commit, ObjectError, Tag};

/// Bytes of a message at most.
pub const MAX_MESSAGE: usize = 64 << 10;
/// Bytes of metrics and metadata together at most, with `PER_PAIR` for each.
pub const MAX_METADATA: usize = 1 << 20;
/// Bytes of an author's name, and of the address, at most.
pub const MAX_NAME: usize = 1 << 10;
/// Bytes of a signature at most.
pub const MAX_SIGNATURE: usize = 16 << 10;
/// Bytes of a version's provenance at most.
pub const MAX_PROVENANCE: usize = 256 << 10;
/// What a pair takes beside its texts.
const PER_PAIR: usize = 32;
/// Bytes of a long message that are shown.
const BEGINNING: usize = 16 << 10;
/// Parents that are shown of more than any merge has.
const PARENTS: usize = 1000;

fn check(what: &'static str, len: usize, most: usize) -> Result<(), ObjectError> {
    match len > most {
        true => Err(ObjectError::TooLong { what, len, most }),
        false => Ok(()),
    }
}

impl Commit {
    fn metadata_len(&self) -> usize {
        let metrics = self.metrics.keys().map(|k| k.len() + PER_PAIR);
        let pairs = self.meta.iter().map(|(k, v)| k.len() + v.len() + PER_PAIR);
        metrics.chain(pairs).sum()
    }

    /// Refuses a new version with a field longer than its limit.
    pub fn check_bounds(&self) -> Result<(), ObjectError> {
        check("message", self.message.len(), MAX_MESSAGE)?;
        check("metrics and metadata", self.metadata_len(), MAX_METADATA)?;
        check("author's name", self.author.name.len(), MAX_NAME)?;
        check("author's address", self.author.email.len(), MAX_NAME)?;
        check("provenance", self.provenance.as_ref().map_or(0, String::len), MAX_PROVENANCE)?;
        check("signature", self.signature.as_ref().map_or(0, String::len), MAX_SIGNATURE)
    }

    /// Bytes of all texts in it.
    pub fn said(&self) -> usize {
        let author = self.author.name.len() + self.author.email.len();
        let quality = self.quality.as_ref().map_or(0, String::len);
        let parents = self.parents.len() * 64;
        let origin = self.provenance.as_ref().map_or(0, String::len) + self.signature.as_ref().map_or(0, String::len);
        self.message.len() + self.metadata_len() + author + quality + origin + parents + PER_PAIR
    }

    /// Cuts fields that are longer than any new version's to their beginning, or to nothing. Returns whether there were
    /// any.
    pub fn shorten(&mut self) -> bool {
        let mut cut = shorten(&mut self.message, MAX_MESSAGE);
        cut |= shorten(&mut self.author.name, MAX_NAME) | shorten(&mut self.author.email, MAX_NAME);
        if self.metadata_len() > MAX_METADATA {
            (self.metrics, self.meta, cut) = (Default::default(), Default::default(), true);
        }
        if self.quality.as_ref().is_some_and(|q| q.len() > MAX_METADATA) {
            (self.quality, cut) = (None, true);
        }
        if self.provenance.as_ref().is_some_and(|p| p.len() > MAX_PROVENANCE) {
            (self.provenance, cut) = (None, true);
        }
        if self.signature.as_ref().is_some_and(|s| s.len() > MAX_SIGNATURE) {
            (self.signature, cut) = (None, true);
        }
        if self.parents.len() > PARENTS {
            self.parents.truncate(PARENTS);
            cut = true;
        }
        self.unknown.clear();
        cut
    }
}

impl Tag {
    /// Refuses a new tag with a field longer than its limit.
    pub fn check_bounds(&self) -> Result<(), ObjectError> {
        check("message", self.message.len(), MAX_MESSAGE)?;
        check("tagger's name", self.tagger.name.len(), MAX_NAME)?;
        check("tagger's address", self.tagger.email.len(), MAX_NAME)?;
        check("signature", self.signature.as_ref().map_or(0, String::len), MAX_SIGNATURE)
    }
}

/// Cuts a text of more than `most` bytes to its beginning. Returns whether it was one.
pub fn shorten(text: &mut String, most: usize) -> bool {
    if text.len() <= most {
        return false;
    }
    text.truncate(text.floor_char_boundary(most.min(BEGINNING)));
    text.shrink_to_fit();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Id, Signature, Summary};

    fn commit(message: usize, pairs: usize, value: usize) -> Commit {
        Commit {
            tree: Id::from_bytes([0; 32]),
            parents: Vec::new(),
            author: Signature { name: "Ada".to_owned(), email: String::new(), time_ms: 0, utc_offset_min: 0 },
            message: "\u{e9}".repeat(message / 2),
            step: None,
            epoch: None,
            metrics: [("loss".to_owned(), 1.0)].into(),
            meta: (0..pairs).map(|i| (format!("{i:06}"), "v".repeat(value))).collect(),
            summary: Summary::default(),
            report: None,
            resumed_from: None,
            quality: None,
            side: Vec::new(),
            resume: None,
            approximation: None,
            provenance: None,
            signature: None,
            unknown: Vec::new(),
        }
    }

    #[test]
    fn what_is_too_long_is_named_and_what_just_fits_is_not() {
        assert!(commit(MAX_MESSAGE, 0, 0).check_bounds().is_ok());
        let what = |c: Commit| match c.check_bounds() {
            Err(ObjectError::TooLong { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(what(commit(MAX_MESSAGE + 2, 0, 0)), "message");
        assert_eq!(what(commit(0, 2, MAX_METADATA / 2)), "metrics and metadata");
        // Many small ones take room, too.
        assert_eq!(what(commit(0, 40_000, 1)), "metrics and metadata");
        assert!(commit(0, 20_000, 1).check_bounds().is_ok());
    }

    #[test]
    fn what_any_new_version_may_say_is_shown_whole_and_the_beginning_of_more() {
        let fits = commit(MAX_MESSAGE, 20_000, 1);
        let mut shown = fits.clone();
        assert!(!shown.shorten() && shown == fits);
        let mut long = commit(10 << 20, 40_000, 100);
        assert!(long.shorten());
        assert!(fits.message.starts_with(&long.message) && long.message.len() > BEGINNING - 4);
        assert!(long.said() < MAX_MESSAGE && long.meta.is_empty());
    }
}
