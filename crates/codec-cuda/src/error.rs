//! Errors of work on a device.

use mdl_codec::CodecError;
use thiserror::Error;

/// Work on a device failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// No driver, no compiler or no device: the text says which, and what would help.
    #[error("{0}")]
    Absent(String),
    /// The device has no memory left for `wanted` bytes.
    #[error("the device has no memory left for {wanted} bytes")]
    OutOfMemory {
        /// Bytes that were asked for.
        wanted: usize,
    },
    /// A kernel does not compile or load.
    #[error("kernel {name}: {why}")]
    Kernel {
        /// File or function.
        name: String,
        /// The compiler's or driver's words.
        why: String,
    },
    /// The driver refused or a kernel failed.
    #[error("the device failed: {0}")]
    Failed(String),
    /// Encoded bytes that do not decode.
    #[error("corrupt: {0}")]
    Corrupt(&'static str),
    /// Not wrong, but only the CPU does this.
    #[error("not done on a device: {0}")]
    Unsupported(&'static str),
}

/// What the codec says of bytes or of a plan.
impl From<CodecError> for DeviceError {
    fn from(e: CodecError) -> DeviceError {
        match e {
            CodecError::Corrupt(why) => DeviceError::Corrupt(why),
            other => DeviceError::Failed(other.to_string()),
        }
    }
}

/// Of device work.
pub(crate) type Result<T> = std::result::Result<T, DeviceError>;
