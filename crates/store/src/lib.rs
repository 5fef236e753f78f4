//! One physical store: objects in packs, and the refs that name them, with no policy about versions.

pub mod error;
pub mod lock;
pub mod object_db;
pub mod pack;
pub mod progress;
pub mod reachability;
pub mod read;
pub mod refs;
pub mod storage;
mod store;
pub mod transaction;
pub mod values;
pub mod write;

pub use error::{ErrorKind, Missing, Remedy, RepoError, Result, Unchanged};
pub use progress::{Progress, Silent};
pub use store::Store;
