//! Writes files in PyTorch's format before the zip.

use super::{pickle::Pickle, scanned};
use mdl_files::{Format, Layout};

/// What a file is scanned under.
pub const NAME: &str = "pretrained.pt";
/// The magic pickle.
pub const MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
const VERSION: &[u8] = b"\x80\x02M\xe9\x03.";

/// A file's parts, for tests to break one of them.
#[derive(Clone)]
pub struct Legacy {
    pub magic: Vec<u8>,
    pub version: Vec<u8>,
    pub system: Vec<u8>,
    pub object: Vec<u8>,
    pub keys: Vec<u8>,
    pub payloads: Vec<u8>,
}

impl Legacy {
    /// Around an object without STOP; storages are `(key, elements, bytes per element)` in the order of the file.
    pub fn new(object: Pickle, storages: &[(&str, i64, usize)]) -> Legacy {
        let mut payloads = Vec::new();
        for &(_, count, unit) in storages {
            payloads.extend(count.to_le_bytes());
            payloads.extend(vec![5; usize::try_from(count).unwrap_or(0) * unit]);
        }
        Legacy {
            magic: MAGIC.to_vec(),
            version: VERSION.to_vec(),
            system: system(true),
            object: object.stop(),
            keys: keys(&storages.iter().map(|s| s.0).collect::<Vec<_>>()),
            payloads,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let parts = [&self.magic, &self.version, &self.system, &self.object, &self.keys, &self.payloads];
        parts.into_iter().flatten().copied().collect()
    }
}

/// What a writer says about its machine.
pub fn system(little: bool) -> Vec<u8> {
    let p = Pickle::new().raw(b"}q\0(").text("protocol_version").raw(b"M\xe9\x03");
    let p = p.text("little_endian").raw(if little { b"\x88" } else { b"\x89" });
    let p = p.text("type_sizes").raw(b"}(").text("int").raw(b"K\x04u");
    p.raw(b"u").stop()
}

/// The list of storage keys.
pub fn keys(keys: &[&str]) -> Vec<u8> {
    let list = keys.iter().fold(Pickle::new().raw(b"]q\0("), |p, key| p.text(key));
    list.raw(b"e").stop()
}

/// An f32 tensor on the storage `key`, or on a window of it, as old PyTorch had them: `(key, offset, count)`.
pub fn on(p: Pickle, key: &str, count: i32, window: Option<(&str, i32, i32)>, at: (i32, &[i32])) -> Pickle {
    let p = p.global("torch._utils", "_rebuild_tensor_v2").raw(b"((");
    let p = p.text("storage").global("torch", "FloatStorage").text(key).text("cpu");
    let p = p.int(count);
    let p = match window {
        Some((key, offset, count)) => p.raw(b"(").text(key).int(offset).int(count).raw(b"t"),
        None => p.raw(b"N"),
    };
    let mut strides = vec![1; at.1.len()];
    for i in (1..at.1.len()).rev() {
        strides[i - 1] = strides[i] * at.1[i];
    }
    let p = p.raw(b"tQ").int(at.0).ints(at.1).ints(&strides);
    p.raw(b"\x89").global("collections", "OrderedDict").raw(b")RtR")
}

/// A small training checkpoint: two tied tensors, a free one, and state; the file has them in another order.
pub fn checkpoint() -> Legacy {
    let p = Pickle::new().raw(b"}(").text("model").raw(b"}(");
    let p = on(p.text("embed.weight"), "941", 12, None, (0, &[3, 4]));
    let p = on(p.text("head.weight"), "941", 12, None, (0, &[3, 4]));
    let p = on(p.text("bias"), "700", 2, None, (0, &[2])).raw(b"u");
    let p = p.text("state").raw(b"}(").int(0).raw(b"}").text("exp_avg");
    let p = on(p, "820", 12, None, (0, &[3, 4])).raw(b"suu");
    Legacy::new(p, &[("700", 2, 4), ("820", 12, 4), ("941", 12, 4)])
}

/// What is found in a file, as one of this format.
pub fn layout(file: &Legacy) -> Layout {
    let layout = scanned(&file.bytes(), NAME).unwrap();
    assert_eq!(layout.format, Format::TorchLegacy);
    layout
}

/// Whether a file is taken as bytes without tensors.
pub fn is_plain(file: &Legacy) -> bool {
    scanned(&file.bytes(), NAME).unwrap() == Layout::plain()
}
