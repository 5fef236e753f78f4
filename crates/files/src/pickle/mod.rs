//! A restricted pickle reader: it runs the stack machine far enough to see where each value is, resolves no name and
//! executes nothing.

mod machine;
mod ops;
mod values;

pub(crate) use machine::{Keep, run, run_first};
pub(crate) use values::{Bag, Graph, Node, Span, Value};

/// Why a pickle could not be followed. Only [`Lost::SHORT`] is acted on; the other phrases are for debugging.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost(pub(crate) &'static str);

impl Lost {
    /// The bytes end before the pickle does; with more of them it might go on.
    pub(crate) const SHORT: Lost = Lost("ends before its STOP");
}
