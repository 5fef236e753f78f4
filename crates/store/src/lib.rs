//! One physical store: objects in packs, and the refs that name them. It knows no policy: which versions there are, and
//! which of them stay, is decided above.
//!
//! * [`storage`]: keys and values, on disk, in memory or in a bucket. Values are replaced whole or by compare-and-swap.
//! * [`pack`]: immutable files of encoded objects. [`object_db`] finds an object in them, [`read`] decodes tensors and
//!   puts files together again, [`write`](mod@write) cuts files into objects and encodes what is new.
//!   [`cache`]: decoded tensors, kept so that no chain is decoded twice.
//! * [`refs`]: names that move, each move in a log. [`reachability`]: what they keep alive.
//! * [`lock`]: what keeps collectors from what a writer relies on. A [`transaction`] takes each step of a change in the
//!   one order that is safe.
//!
//! ```
//! use mdl_codec::CpuEngine;
//! use mdl_objects::Kind;
//! use mdl_store::{Store, object_db::Odb, refs::Refs, storage::MemoryStorage, transaction::WriteTransaction};
//! use std::sync::Arc;
//!
//! let storage = Arc::new(MemoryStorage::new());
//! let odb = Odb::new(storage.clone(), Arc::new(CpuEngine::new()), None);
//! let store = Store::new(storage.clone(), odb, Refs::new(storage), None);
//! let id = WriteTransaction::begin(&store)?.add(Kind::Blob, b"a model card", [])?;
//! assert_eq!(store.odb().read(&id, Kind::Blob)?, b"a model card");
//! # Ok::<(), mdl_store::RepoError>(())
//! ```

pub mod cache;
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

pub use error::{ErrorKind, Missing, Refusal, Remedy, RepoError, Result, Unchanged};
pub use progress::{Progress, Silent};
pub use store::{RefGuard, Store};
