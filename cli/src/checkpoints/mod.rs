//! Checkpoints in a directory that a training framework writes: which entries are some, and where in the run each is.

pub mod find;
pub mod name;
pub mod trainer;
