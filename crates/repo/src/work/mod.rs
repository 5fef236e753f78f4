//! The work tree: its files, and their ids as objects.

mod lock;
mod pages;
pub mod remove;
mod stat;
mod walk;

pub use lock::WorkTreeLock;
pub(crate) use pages::{Patience, expose_writes};
pub use stat::FileState;
pub(crate) use stat::{recall, remember};
pub use walk::WorkFile;
pub(crate) use walk::{survey, walk};
