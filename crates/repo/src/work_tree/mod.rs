//! The work tree: its files, and their ids as objects.

mod base;
mod lock;
mod others;
pub mod remove;
mod status;
mod walk;

pub use base::{clear_work_tree_base, refuse_moved, work_tree_base};
pub(crate) use base::{is_of_work_tree, set_work_tree_base};
pub use lock::{WorkTreeLock, lock_work_tree};
pub use others::{WorkTree, work_trees};
pub(crate) use others::{lock_branches, refuse_taken};
pub(crate) use status::differs;
pub use status::{Survey, file_equals, status, survey};
pub(crate) use walk::survey_work_tree;
pub use walk::walk;
