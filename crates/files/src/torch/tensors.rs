//! Recognises tensors and storages among a pickle's values, by the names of the functions that would rebuild them.

use crate::pickle::{Graph, Node, Span, Value};
use mdl_codec::Dtype;

/// A storage as a persistent id describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorageRef {
    /// The last part of the entry's name.
    pub(super) key: Span,
    /// `None` where the bytes are untyped or of a type we do not know.
    pub(super) dtype: Option<Dtype>,
    /// Bytes of an element; `None` for a type we do not know.
    pub(super) unit: Option<u64>,
    /// Length in elements of the storage's own type.
    pub(super) count: u64,
    /// The element at which its tensors begin to count: other than 0 where it was a window on a longer storage, which
    /// then has the key. `None` where that cannot be told.
    base: Option<u64>,
}

/// A tensor: a strided window on a storage.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) storage: StorageRef,
    pub(super) dtype: Option<Dtype>,
    /// In elements.
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
    pub(super) strides: Vec<u64>,
}

/// How many dimensions are believed; PyTorch stops at 64.
const MAX_DIMS: usize = 64;
/// How many wrappers (a parameter of a subclass of ...) are looked through.
const MAX_WRAPPERS: u32 = 4;

/// The storage that a persistent id stands for: `('storage', type, key, location, count)`, before the zip with a sixth
/// part: None, or the window `(key, offset, count)`.
pub(super) fn storage(graph: &Graph<'_>, value: Value) -> Option<StorageRef> {
    let Node::Persistent(id) = graph.node(value)? else {
        return None;
    };
    let [kind, class, Value::Text(key), _, Value::Int(count), rest @ ..] = graph.tuple(*id)? else {
        return None;
    };
    if graph.text(*kind)? != b"storage" {
        return None;
    }
    let class = graph.global(*class).map_or(b"".as_slice(), |(_, name)| name);
    Some(StorageRef {
        key: *key,
        dtype: class_dtype(class),
        unit: class_unit(class),
        count: u64::try_from(*count).ok()?,
        base: base(graph, rest.first()),
    })
}

fn base(graph: &Graph<'_>, window: Option<&Value>) -> Option<u64> {
    match window {
        None | Some(Value::Atom) => Some(0),
        Some(&window) => match graph.tuple(window)? {
            &[_, offset, _] => number(offset),
            _ => None,
        },
    }
}

/// The tensor that a value would be rebuilt as.
pub(super) fn tensor(graph: &Graph<'_>, value: Value) -> Option<Tensor> {
    let Node::Bag(bag) = graph.node(value)? else {
        return None;
    };
    let (callable, args) = bag.made?;
    rebuilt(graph, callable, args, MAX_WRAPPERS)
}

/// The value that a call passes through unchanged, as far as tensors go: TorchScript tags containers with their types.
pub(super) fn passed_through(graph: &Graph<'_>, callable: Value, args: Value) -> Option<Value> {
    match graph.global(callable)? {
        (b"torch.jit._pickle", b"restore_type_tag") => graph.tuple(args)?.first().copied(),
        _ => None,
    }
}

fn rebuilt(graph: &Graph<'_>, callable: Value, args: Value, wrappers: u32) -> Option<Tensor> {
    let (module, name) = graph.global(callable)?;
    if !module.starts_with(b"torch") {
        return None;
    }
    let parts = graph.tuple(args)?;
    match name {
        b"_rebuild_tensor" | b"_rebuild_tensor_v2" | b"_rebuild_tensor_v3" | b"_rebuild_qtensor" => {
            let storage = storage(graph, *parts.first()?)?;
            // Only the third version says the type itself, its storage being untyped.
            let dtype = match name {
                b"_rebuild_tensor_v3" => parts.get(6).and_then(|&d| graph.global(d)).and_then(|(_, d)| scalar_dtype(d)),
                _ => storage.dtype,
            };
            Some(Tensor {
                storage,
                dtype,
                offset: storage.base?.checked_add(number(*parts.get(1)?)?)?,
                shape: numbers(graph, *parts.get(2)?)?,
                strides: numbers(graph, *parts.get(3)?)?,
            })
        }
        b"_rebuild_parameter" | b"_rebuild_parameter_with_state" if wrappers > 0 => {
            let Node::Bag(bag) = graph.node(*parts.first()?)? else {
                return None;
            };
            let (callable, args) = bag.made?;
            rebuilt(graph, callable, args, wrappers - 1)
        }
        b"_rebuild_from_type" | b"_rebuild_from_type_v2" if wrappers > 0 => {
            rebuilt(graph, *parts.first()?, *parts.get(2)?, wrappers - 1)
        }
        _ => None,
    }
}

fn number(value: Value) -> Option<u64> {
    match value {
        Value::Int(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

/// A tuple of numbers, or a `torch.Size` made of one.
fn numbers(graph: &Graph<'_>, value: Value) -> Option<Vec<u64>> {
    let parts = match graph.node(value)? {
        Node::Tuple(parts) => parts,
        Node::Bag(bag) => graph.tuple(*graph.tuple(bag.made?.1)?.first()?)?,
        _ => return None,
    };
    if parts.len() > MAX_DIMS {
        return None;
    }
    parts.iter().map(|&part| number(part)).collect()
}

/// The element type of a storage class.
fn class_dtype(class: &[u8]) -> Option<Dtype> {
    Some(match class {
        b"DoubleStorage" => Dtype::F64,
        b"FloatStorage" => Dtype::F32,
        b"HalfStorage" => Dtype::F16,
        b"BFloat16Storage" => Dtype::BF16,
        b"LongStorage" => Dtype::I64,
        b"IntStorage" | b"QInt32Storage" => Dtype::I32,
        b"ShortStorage" => Dtype::I16,
        b"CharStorage" | b"QInt8Storage" => Dtype::I8,
        b"ByteStorage" | b"QUInt8Storage" => Dtype::U8,
        b"BoolStorage" => Dtype::Bool,
        b"ComplexFloatStorage" => Dtype::C64,
        b"ComplexDoubleStorage" => Dtype::C128,
        _ => return None,
    })
}

/// The size of a storage class's elements, also where they have no type of ours.
fn class_unit(class: &[u8]) -> Option<u64> {
    match class {
        b"UntypedStorage" | b"_UntypedStorage" | b"QUInt4x2Storage" | b"QUInt2x4Storage" => Some(1),
        _ => class_dtype(class).map(|d| d.size() as u64),
    }
}

/// The element type of a `torch.dtype`.
fn scalar_dtype(name: &[u8]) -> Option<Dtype> {
    Some(match name {
        b"float64" => Dtype::F64,
        b"float32" => Dtype::F32,
        b"float16" => Dtype::F16,
        b"bfloat16" => Dtype::BF16,
        // The variants without negative zero (…fnuz) have another meaning per bit pattern and stay opaque.
        b"float8_e4m3fn" => Dtype::F8E4M3,
        b"float8_e5m2" => Dtype::F8E5M2,
        b"int64" => Dtype::I64,
        b"int32" => Dtype::I32,
        b"int16" => Dtype::I16,
        b"int8" => Dtype::I8,
        b"uint64" => Dtype::U64,
        b"uint32" => Dtype::U32,
        b"uint16" => Dtype::U16,
        b"uint8" => Dtype::U8,
        b"bool" => Dtype::Bool,
        b"complex64" => Dtype::C64,
        b"complex128" => Dtype::C128,
        _ => return None,
    })
}
