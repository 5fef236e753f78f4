//! A restricted pickle reader: it runs the stack machine far enough to see which value hangs where, resolves no name and
//! executes nothing. Neighbours: `torch` looks for tensors in the graph it returns. It must not know tensors or zips.

mod machine;
mod ops;
mod values;

pub(crate) use machine::run;
pub(crate) use values::{Bag, Graph, Node, Span, Value};

/// Why a pickle could not be followed. Nobody acts on the difference; the phrase is for tests and debugging.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost(pub(crate) &'static str);
