//! Annotated tags: a name with a message, pointing at a commit.

use crate::{Id, ObjectError, Reader, Signature, Writer};

/// Without a signature.
const PLAIN: u8 = 1;
/// With one behind the message.
const SIGNED: u8 = 2;

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
    /// Armoured SSH signature over [`Tag::signed_bytes`].
    pub signature: Option<String>,
}

impl Tag {
    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let version = if self.signature.is_some() { SIGNED } else { PLAIN };
        let mut w = self.encode_as(version);
        if let Some(signature) = &self.signature {
            w.str(signature);
        }
        w.bytes
    }

    /// The bytes that a signature is made over: those of the same tag without one.
    pub fn signed_bytes(&self) -> Vec<u8> {
        self.encode_as(PLAIN).bytes
    }

    fn encode_as(&self, version: u8) -> Writer {
        let mut w = Writer::default();
        w.u8(version);
        w.id(&self.target);
        w.str(&self.name);
        self.tagger.write(&mut w);
        w.str(&self.message);
        w
    }

    /// Parses canonical bytes; whatever `encode` would not write is refused.
    pub fn decode(bytes: &[u8]) -> Result<Tag, ObjectError> {
        let mut r = Reader::new(bytes);
        let version = r.version(SIGNED)?;
        let (target, name, tagger, message) = (r.id()?, r.str()?, Signature::read(&mut r)?, r.str()?);
        let signature = (version == SIGNED).then(|| r.str()).transpose()?;
        r.finish()?;
        Ok(Tag { target, name, tagger, message, signature })
    }
}
