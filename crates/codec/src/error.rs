//! Errors of the codec.

use thiserror::Error;

/// Errors of encoding and decoding.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    /// The encoded bytes cannot be what an encoder wrote; the text says what is wrong.
    #[error("corrupt encoding: {0}")]
    Corrupt(&'static str),
    /// The encoding is a difference and no base was given.
    #[error("the encoding needs its base and none was given")]
    MissingBase,
    /// The caller's lengths disagree with the rules of [`crate::Engine`].
    #[error("bad input: {0}")]
    BadInput(&'static str),
    /// A device could not do it, through no fault of the bytes: the host can.
    #[error("{0}")]
    Device(String),
}

/// Of encoding and decoding.
pub type Result<T, E = CodecError> = std::result::Result<T, E>;
