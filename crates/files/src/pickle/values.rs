//! The values a pickle builds, as a graph of small cells that point into the pickle's bytes.

use std::borrow::Cow;

/// A run of bytes of the pickle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Span {
    /// The bytes, of those of the pickle.
    pub(super) fn slice(self, pickle: &[u8]) -> &[u8] {
        let from = self.at as usize;
        pickle.get(from..from.saturating_add(self.len as usize)).unwrap_or_default()
    }
}

/// A value: what matters later, and nothing of what does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// None, floats, bytes, integers beyond 64 bits: never part of a tensor's description.
    Atom,
    Bool(bool),
    Int(i64),
    Text(Span),
    /// Index into [`Graph::nodes`].
    Node(u32),
}

/// A value with parts.
#[derive(Debug)]
pub(crate) enum Node {
    Tuple(Box<[Value]>),
    /// A class or function: module and name, never looked up.
    Global(Span, Span),
    /// An object kept outside the pickle, by its id.
    Persistent(Value),
    /// Whatever can be filled after it was made.
    Bag(Box<Bag>),
}

/// A list, dict, set or object. Parts without parts of their own are counted, but kept only on demand.
#[derive(Debug, Default)]
pub(crate) struct Bag {
    /// The callable and arguments it was made from; `None` for list, dict and set displays.
    pub(crate) made: Option<(Value, Value)>,
    /// How many parts it has, kept or not.
    pub(crate) len: u64,
    /// Key (or position) and value of the parts kept.
    pub(crate) items: Vec<(Value, Value)>,
    /// What BUILD gave it.
    pub(crate) state: Option<Value>,
}

#[derive(Debug)]
pub(crate) struct Graph<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: Value,
}

impl<'a> Graph<'a> {
    pub(crate) fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(index) => self.nodes.get(usize::try_from(index).ok()?),
            _ => None,
        }
    }

    pub(crate) fn tuple(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::Tuple(parts) => Some(parts),
            _ => None,
        }
    }

    /// Module and name of a global.
    pub(crate) fn global(&self, value: Value) -> Option<(&'a [u8], &'a [u8])> {
        match self.node(value)? {
            Node::Global(module, name) => Some((self.slice(*module), self.slice(*name))),
            _ => None,
        }
    }

    pub(crate) fn text(&self, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text(span) => Some(self.slice(span)),
            _ => None,
        }
    }

    pub(crate) fn slice(&self, span: Span) -> &'a [u8] {
        span.slice(self.bytes)
    }

    /// A span as text, for people.
    pub(crate) fn lossy(&self, span: Span) -> Cow<'a, str> {
        String::from_utf8_lossy(self.slice(span))
    }
}
