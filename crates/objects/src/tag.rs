//! Annotated tags: a name with a message, pointing at a commit.

use crate::{Id, ObjectError, Reader, Signature, Writer};

const VERSION: u8 = 1;

/// An annotated tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The tagged commit.
    pub target: Id,
    /// The tag's name.
    pub name: String,
    /// Author and time.
    pub tagger: Signature,
    /// Message.
    pub message: String,
}

impl Tag {
    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.id(&self.target);
        w.str(&self.name);
        self.tagger.write(&mut w);
        w.str(&self.message);
        w.bytes
    }

    /// Parses canonical bytes; whatever `encode` would not write is refused.
    pub fn decode(bytes: &[u8]) -> Result<Tag, ObjectError> {
        let mut r = Reader::new(bytes);
        r.version(VERSION)?;
        let tag = Tag { target: r.id()?, name: r.str()?, tagger: Signature::read(&mut r)?, message: r.str()? };
        r.finish()?;
        Ok(tag)
    }
}
