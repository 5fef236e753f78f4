//! Writes pickles, one opcode after the other, and the `.pt` archives around them.

use super::zip::{self, Entry};

/// A pickle in the making. Protocol 2, as PyTorch writes it, unless a test says otherwise.
#[derive(Clone, Default)]
pub struct Pickle(pub Vec<u8>);

impl Pickle {
    pub fn new() -> Pickle {
        Pickle(vec![0x80, 2])
    }

    pub fn raw(mut self, bytes: &[u8]) -> Pickle {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn text(self, s: &str) -> Pickle {
        self.raw(b"X").raw(&(s.len() as u32).to_le_bytes()).raw(s.as_bytes())
    }

    pub fn int(self, n: i32) -> Pickle {
        self.raw(b"J").raw(&n.to_le_bytes())
    }

    pub fn global(self, module: &str, name: &str) -> Pickle {
        self.raw(format!("c{module}\n{name}\n").as_bytes())
    }

    pub fn ints(self, values: &[i32]) -> Pickle {
        values.iter().fold(self.raw(b"("), |p, &n| p.int(n)).raw(b"t")
    }

    /// A storage by persistent id.
    pub fn storage(self, class: &str, key: &str, count: i32) -> Pickle {
        let p = self.raw(b"(").text("storage").global("torch", class).text(key).text("cpu");
        p.int(count).raw(b"tQ")
    }

    /// A tensor on a storage.
    pub fn tensor(self, class: &str, key: &str, count: i32, window: (i32, &[i32], &[i32])) -> Pickle {
        let (offset, shape, strides) = window;
        let p = self.global("torch._utils", "_rebuild_tensor_v2").raw(b"(");
        let p = p.storage(class, key, count).int(offset).ints(shape).ints(strides);
        p.raw(b"\x89").global("collections", "OrderedDict").raw(b")RtR")
    }

    /// A dense f32 tensor that is a storage of its own.
    pub fn whole(self, key: &str, shape: &[i32]) -> Pickle {
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i];
        }
        self.tensor("FloatStorage", key, shape.iter().product(), (0, shape, &strides))
    }

    pub fn stop(self) -> Vec<u8> {
        self.raw(b".").0
    }
}

/// An archive around a pickle; storages are `(key, bytes)`.
pub fn pt(pickle: &[u8], storages: &[(&str, usize)]) -> Vec<u8> {
    zip::simple(&pt_entries(pickle, storages))
}

/// The entries of such an archive, written the way PyTorch writes them.
pub fn pt_entries(pickle: &[u8], storages: &[(&str, usize)]) -> Vec<Entry> {
    let mut entries = vec![zip::entry("archive/data.pkl", pickle), zip::entry("archive/byteorder", b"little")];
    entries.extend(storages.iter().map(|(key, len)| zip::entry(&format!("archive/data/{key}"), &vec![5; *len])));
    entries.push(zip::entry("archive/version", b"3\n"));
    for e in &mut entries {
        (e.streamed, e.padding) = (true, 9);
    }
    entries
}

/// A small training checkpoint: a model of two tied and one free tensor, and optimizer state.
pub fn checkpoint() -> Vec<u8> {
    let p = Pickle::new().raw(b"}(").text("model").global("collections", "OrderedDict").raw(b")R(");
    let p = p.text("embed.weight").whole("0", &[3, 4]).text("head.weight").whole("0", &[3, 4]);
    let p = p.text("bias").whole("1", &[2]).raw(b"u}").text("_metadata").raw(b"}sb");
    let p = p.text("optimizer").raw(b"}(").text("state").raw(b"}(").int(0).raw(b"}");
    let p = p.text("exp_avg").whole("2", &[3, 4]).raw(b"su").text("lr").raw(b"G\0\0\0\0\0\0\0\0uu."); // closes exp_avg, state; then optimizer, all
    pt(&p.0, &[("0", 48), ("1", 8), ("2", 48)])
}
