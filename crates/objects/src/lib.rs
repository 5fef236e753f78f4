//! The object model: ids and canonical bytes of blob, tensor, manifest, tree, commit, tag. Specified in docs/format.md,
//! "Objects".

mod bounds;
mod commit;
mod id;
mod manifest;
mod names;
mod safe;
mod tag;
mod tree;
mod wire;

pub use bounds::{MAX_MESSAGE, MAX_METADATA, MAX_NAME, shorten};
pub use commit::{Commit, Resume, Signature, Summary};
pub use id::{Id, IdHasher, Kind, ParseIdError, tensor_hasher, tensor_head, tensor_id};
pub use manifest::{Chunk, Manifest, TensorRef, ViewRef};
pub use names::Named;
pub use safe::check_new_name;
pub use tag::Tag;
pub use tree::{Entry, Mode, Tree, check_name};
pub use wire::{ObjectError, Reader, Writer};
