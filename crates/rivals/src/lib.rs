//! Other compression systems, as their papers describe them, and their comparison with mdl's own on checkpoint files.
//! Nothing is stored with them: their formats may change with every version.

pub mod compare;
pub mod systems;
