//! Walks a pickle's values from the root and names every tensor by the way to it: `model.encoder.weight`,
//! `optimizer.state.0.exp_avg`.
//!
//! The walk is breadth first and enters every container once, by the shortest way, so shared and cyclic values cost no
//! more than they occupy. Ways that are too deep or too long give no name; the storage then goes by its entry.

use super::{
    storages::StorageTable,
    tensors::{self, Tensor},
};
use crate::pickle::{Bag, Graph, Node, Value};
use std::collections::VecDeque;

/// The longest way that is spelled out, in components and in bytes.
const MAX_DEPTH: u32 = 100;
const MAX_NAME: usize = 1024;
/// A dict key beyond this is an object's address, as old optimizers used them; the next run will have others.
const MAX_NUMBER: i64 = u32::MAX as i64;
/// Named tensors may occupy so many times the pickle's bytes: more than any real one needs, less than a hostile one
/// could ask for by recalling one tensor under one long key again and again.
const BUDGET: usize = 16;
const ALLOWANCE: usize = 64 << 10;
const TENSOR_COST: usize = 64;
const DIM_COST: usize = 16;

/// One step of a way.
#[derive(Clone, Copy)]
enum Key {
    /// Adds nothing to the name: an object's attribute dict, a module's parameter dict.
    Silent,
    /// A dict's key or a list's position.
    Part(Value),
    /// The position of an entry whose key is neither text nor a number that means anything.
    Position(usize),
}

struct Step {
    parent: u32,
    key: Key,
    depth: u32,
}

struct Walk<'g, 'a> {
    graph: &'g Graph<'a>,
    base: &'g str,
    steps: Vec<Step>,
    entered: Vec<bool>,
    queue: VecDeque<(Value, u32)>,
    budget: usize,
    finds: StorageTable,
}

/// Finds all storages and tensors; names begin with `base`.
pub(super) fn walk(graph: &Graph<'_>, base: &str) -> StorageTable {
    let mut walk = Walk {
        graph,
        base,
        steps: vec![Step { parent: 0, key: Key::Silent, depth: 0 }],
        entered: vec![false; graph.nodes.len()],
        queue: VecDeque::new(),
        budget: graph.bytes.len().saturating_mul(BUDGET).saturating_add(ALLOWANCE),
        finds: StorageTable::default(),
    };
    for index in (0u32..).take(graph.nodes.len()) {
        if let Some(storage) = tensors::storage(graph, Value::Node(index)) {
            walk.finds.saw(graph.slice(storage.key), storage);
        }
    }
    walk.meet(graph.root, 0);
    while let Some((value, step)) = walk.queue.pop_front() {
        walk.enter(value, step);
    }
    walk.finds
}

impl Walk<'_, '_> {
    /// Records a tensor, or queues a container that was not entered before.
    fn meet(&mut self, value: Value, step: u32) {
        let Value::Node(index) = value else { return };
        if let Some(tensor) = tensors::tensor(self.graph, value) {
            self.found(tensor, step);
            return;
        }
        if let Some(entered) = self.entered.get_mut(index as usize)
            && !std::mem::replace(entered, true)
        {
            self.queue.push_back((value, step));
        }
    }

    fn found(&mut self, tensor: Tensor, step: u32) {
        let Some(name) = self.spell(step) else { return };
        let cost = name.len() + TENSOR_COST + DIM_COST * tensor.shape.len();
        if let Some(left) = self.budget.checked_sub(cost) {
            self.budget = left;
            self.finds.named(self.graph.slice(tensor.storage.key), name, tensor);
        }
    }

    fn enter(&mut self, value: Value, step: u32) {
        let graph = self.graph;
        match graph.node(value) {
            Some(Node::Tuple(parts)) => {
                for (i, &part) in parts.iter().enumerate() {
                    self.go(part, step, Key::Position(i));
                }
            }
            Some(Node::Bag(bag)) => self.enter_bag(bag, step),
            _ => {}
        }
    }

    fn enter_bag(&mut self, bag: &Bag, step: u32) {
        for (i, &(key, part)) in bag.items.iter().enumerate() {
            let key = match key {
                Value::Int(n) if n > MAX_NUMBER => Key::Position(i),
                Value::Int(_) => Key::Part(key),
                Value::Text(text) if is_silent(self.graph.slice(text)) => Key::Silent,
                Value::Text(_) => Key::Part(key),
                _ => Key::Position(i),
            };
            self.go(part, step, key);
        }
        if let Some(state) = bag.state {
            self.enter_state(state, step);
        }
        if let Some((callable, args)) = bag.made {
            let part = tensors::passed_through(self.graph, callable, args).unwrap_or(args);
            self.go(part, step, Key::Silent);
        }
    }

    /// An object's attributes count as its own parts; so do both halves of a (dict, slots) pair.
    fn enter_state(&mut self, state: Value, step: u32) {
        match self.graph.tuple(state) {
            Some(&[dict, slots]) => {
                self.go(dict, step, Key::Silent);
                self.go(slots, step, Key::Silent);
            }
            _ => self.go(state, step, Key::Silent),
        }
    }

    fn go(&mut self, value: Value, parent: u32, key: Key) {
        let (Value::Node(index), Ok(step)) = (value, u32::try_from(self.steps.len())) else {
            return;
        };
        let depth = self.steps.get(parent as usize).map_or(0, |s| s.depth) + 1;
        if depth > MAX_DEPTH || self.entered.get(index as usize) == Some(&true) {
            return;
        }
        self.steps.push(Step { parent, key, depth });
        self.meet(value, step);
    }

    /// The name of the way to `step`, unless it is too long.
    fn spell(&self, mut step: u32) -> Option<String> {
        let mut parts = Vec::new();
        while step != 0 {
            let Step { parent, key, .. } = self.steps.get(step as usize)?;
            match *key {
                Key::Silent => {}
                Key::Position(i) => parts.push(i.to_string().into()),
                Key::Part(Value::Int(n)) => parts.push(n.to_string().into()),
                Key::Part(Value::Text(text)) if text.len as usize <= MAX_NAME => parts.push(self.graph.lossy(text)),
                Key::Part(_) => return None,
            }
            step = *parent;
        }
        if !self.base.is_empty() {
            parts.push(self.base.into());
        }
        parts.reverse();
        let len: usize = parts.iter().map(|p| p.len() + 1).sum();
        (len <= MAX_NAME && !parts.is_empty()).then(|| parts.join("."))
    }
}

/// The dicts in which a module keeps its parts; without them, names are those of its `state_dict`.
fn is_silent(key: &[u8]) -> bool {
    matches!(key, b"_modules" | b"_parameters" | b"_buffers")
}
