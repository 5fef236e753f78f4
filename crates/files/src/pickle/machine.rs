//! The pickle stack machine.
//!
//! Every opcode consumes at least one byte and touches each stacked value once, so the time is linear in the pickle.
//! The memory is bounded by [`max_cells`]: a copy from the memo is a reference, never a copy of what it refers to.

use super::{
    Lost, ops,
    values::{Bag, Graph, Node, Span, Value},
};
use std::collections::HashMap;

/// How many cells (stacked, memorised or contained values) a pickle of `len` bytes may occupy before it is given up. A
/// tensor takes about forty cells and 150 bytes, so the longest pickles that are followed describe 400,000 of them.
fn max_cells(len: usize) -> usize {
    (len / 2).saturating_add(1 << 20).min(16 << 20)
}

/// Which parts of lists and dicts the graph holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Those that have parts themselves: all it takes to find tensors.
    Nodes,
    All,
}

pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    stack: Vec<Value>,
    /// Heights of the stack at which marks stand; what lies below the last one is out of reach.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    nodes: Vec<Node>,
    /// Cells held by nodes.
    held: usize,
    keep: Keep,
}

/// Runs a pickle to its STOP.
pub(crate) fn run(bytes: &[u8]) -> Result<Graph<'_>, Lost> {
    run_first(bytes, Keep::Nodes).map(|(graph, _)| graph)
}

/// Runs the pickle that `bytes` begin with; the number says where it ends.
pub(crate) fn run_first(bytes: &[u8], keep: Keep) -> Result<(Graph<'_>, usize), Lost> {
    // Spans are 32 bits wide.
    if u32::try_from(bytes.len()).is_err() {
        return Err(Lost("longer than can be addressed"));
    }
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        nodes: Vec::new(),
        held: 0,
        keep,
    };
    let limit = max_cells(bytes.len());
    loop {
        let [op] = machine.array()?;
        if op == b'.' {
            let root = machine.pop()?;
            let Machine { nodes, at, .. } = machine;
            return Ok((Graph { bytes, nodes, root }, at));
        }
        ops::step(&mut machine, op)?;
        if machine.cells() > limit {
            return Err(Lost("more values than any checkpoint has"));
        }
    }
}

impl Machine<'_> {
    fn cells(&self) -> usize {
        self.stack.len() + self.marks.len() + self.memo.len() + self.nodes.len() + self.held
    }

    // Reading.

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Lost> {
        let found = crate::bytes::array_at(self.bytes, self.at).ok_or(Lost::SHORT)?;
        self.at += N;
        Ok(found)
    }

    pub(super) fn span(&mut self, len: u64) -> Result<Span, Lost> {
        let left = self.bytes.len() - self.at;
        let len = usize::try_from(len).ok().filter(|&n| n <= left).ok_or(Lost::SHORT)?;
        let span = Span { at: self.at as u32, len: len as u32 };
        self.at += len;
        Ok(span)
    }

    pub(super) fn slice(&self, span: Span) -> &[u8] {
        span.slice(self.bytes)
    }

    /// The bytes up to the next line feed, which is passed over.
    pub(super) fn line(&mut self) -> Result<Span, Lost> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&b| b == b'\n').ok_or(Lost::SHORT)?;
        let span = self.span(len as u64)?;
        self.at += 1;
        Ok(span)
    }

    // The stack.

    pub(super) fn push(&mut self, value: Value) -> Result<(), Lost> {
        self.stack.push(value);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Result<Value, Lost> {
        if self.stack.len() <= self.floor() {
            return Err(Lost("takes from an empty stack"));
        }
        self.stack.pop().ok_or(Lost("takes from an empty stack"))
    }

    pub(super) fn top(&self) -> Result<Value, Lost> {
        let reachable = self.stack.get(self.floor()..).unwrap_or_default();
        reachable.last().copied().ok_or(Lost("looks at an empty stack"))
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn mark(&mut self) {
        self.marks.push(self.stack.len());
    }

    /// Removes the last mark and what stands above it.
    pub(super) fn since_mark(&mut self) -> Result<Vec<Value>, Lost> {
        let height = self.marks.pop().ok_or(Lost("misses a mark"))?;
        if height > self.stack.len() {
            return Err(Lost("misses a mark"));
        }
        Ok(self.stack.split_off(height))
    }

    /// POP: the top value, or the mark that stands there.
    pub(super) fn drop_top(&mut self) -> Result<(), Lost> {
        if self.stack.len() == self.floor() && self.marks.pop().is_some() {
            return Ok(());
        }
        self.pop().map(drop)
    }

    // The memo.

    pub(super) fn put(&mut self, key: u64) -> Result<(), Lost> {
        let value = self.top()?;
        self.memo.insert(key, value);
        Ok(())
    }

    pub(super) fn memoize(&mut self) -> Result<(), Lost> {
        self.put(self.memo.len() as u64)
    }

    pub(super) fn get(&mut self, key: u64) -> Result<(), Lost> {
        let value = self.memo.get(&key).copied().ok_or(Lost("recalls what it never memorised"))?;
        self.push(value)
    }

    // Values with parts.

    pub(super) fn push_node(&mut self, node: Node) -> Result<(), Lost> {
        let index = u32::try_from(self.nodes.len()).map_err(|_| Lost("has too many values"))?;
        self.held += match &node {
            Node::Tuple(parts) => parts.len(),
            _ => 2,
        };
        self.nodes.push(node);
        self.push(Value::Node(index))
    }

    pub(super) fn push_tuple(&mut self, parts: Vec<Value>) -> Result<(), Lost> {
        self.push_node(Node::Tuple(parts.into()))
    }

    pub(super) fn push_made(&mut self, callable: Value, args: Value) -> Result<(), Lost> {
        let made = Some((callable, args));
        self.push_node(Node::Bag(Box::new(Bag { made, ..Bag::default() })))
    }

    /// Appends to the list, set or list-like object `target`.
    pub(super) fn extend(&mut self, target: Value, parts: &[Value]) -> Result<(), Lost> {
        self.fill(target, parts.iter().map(|part| (None, *part)))
    }

    /// Sets keys of the dict or dict-like object `target`; `pairs` alternates keys and values.
    pub(super) fn update(&mut self, target: Value, pairs: &[Value]) -> Result<(), Lost> {
        if !pairs.len().is_multiple_of(2) {
            return Err(Lost("sets a key without a value"));
        }
        self.fill(target, pairs.as_chunks::<2>().0.iter().map(|[key, part]| (Some(*key), *part)))
    }

    /// Adds parts, those without a key under their position.
    fn fill(&mut self, target: Value, parts: impl Iterator<Item = (Option<Value>, Value)>) -> Result<(), Lost> {
        let Some(bag) = bag(&mut self.nodes, target)? else {
            return Ok(());
        };
        for (key, part) in parts {
            let position = i64::try_from(bag.len).unwrap_or(i64::MAX);
            bag.len += 1;
            if self.keep == Keep::All || matches!(part, Value::Node(_)) {
                bag.items.push((key.unwrap_or(Value::Int(position)), part));
                self.held += 1;
            }
        }
        Ok(())
    }

    pub(super) fn build(&mut self, target: Value, state: Value) -> Result<(), Lost> {
        if let Some(bag) = bag(&mut self.nodes, target)? {
            bag.state = Some(state);
        }
        Ok(())
    }
}

/// The fillable value behind `target`. An outside object is filled without our knowing; a tuple or a number cannot be.
fn bag(nodes: &mut [Node], target: Value) -> Result<Option<&mut Bag>, Lost> {
    let Value::Node(index) = target else {
        return Err(Lost("fills what cannot be filled"));
    };
    match usize::try_from(index).ok().and_then(|i| nodes.get_mut(i)) {
        Some(Node::Bag(bag)) => Ok(Some(bag)),
        Some(Node::Persistent(_)) => Ok(None),
        _ => Err(Lost("fills what cannot be filled")),
    }
}
