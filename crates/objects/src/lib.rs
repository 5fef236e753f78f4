//! The object model: ids and canonical bytes of blob, tensor, manifest, tree, commit, tag. Specified in docs/format.md,
//! "Canonical objects".
//!
//! An [`Id`] is a hash of an object's [`Kind`] and bytes: equal contents have equal ids, in every repository. A
//! [`Commit`] names a [`Tree`], a tree names files, a [`Manifest`] says of which tensors and other bytes a file is
//! made. What decodes also encodes to the same bytes.
//!
//! ```
//! use mdl_objects::{Entry, Id, Kind, Mode, Tree};
//!
//! let blob = Id::from_content(Kind::Blob, b"{}");
//! let entry = Entry { name: "config.json".to_owned(), mode: Mode::Blob, executable: false, size: 2, id: blob };
//! let tree = Tree { entries: vec![entry] };
//! assert_eq!(Tree::decode(&tree.encode())?, tree);
//! assert_ne!(Id::from_content(Kind::Tree, &tree.encode()), Id::from_content(Kind::Blob, &tree.encode()));
//! # Ok::<(), mdl_objects::ObjectError>(())
//! ```

mod bounds;
mod commit;
mod id;
mod manifest;
mod names;
mod safe;
mod tag;
mod tree;
mod wire;

pub use bounds::{MAX_MESSAGE, MAX_METADATA, MAX_NAME, MAX_PROVENANCE, MAX_SIGNATURE, shorten};
pub use commit::{Commit, Resume, Signature, Summary};
pub use id::{Id, IdHasher, Kind, ParseIdError, tensor_hasher, tensor_head, tensor_id};
pub use manifest::{Chunk, Manifest, TensorRef, ViewRef};
pub use names::Named;
pub use safe::check_new_name;
pub use tag::Tag;
pub use tree::{Entry, Mode, Tree, check_name};
pub use wire::{ObjectError, Reader, Writer};
