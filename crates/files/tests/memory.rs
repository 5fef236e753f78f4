//! No damaged file makes a scan allocate beyond the file's size class. One test, since the allocator counts for all.

#[path = "it/support/counting.rs"]
mod counting;
#[path = "it/support/mod.rs"]
mod support;

use support::{
    gguf, legacy, npy,
    pickle::{Pickle, checkpoint, pt},
    safetensors, scanned, zip,
};

/// The most that is allocated at once while these bytes are scanned.
fn peak(bytes: &[u8], name: &str) -> usize {
    counting::peak_of(|| drop(scanned(bytes, name))).1
}

#[test]
fn memory_stays_in_the_size_class() {
    let items = [safetensors::item("a", "F32", &[2], 0, 8), safetensors::item("b", "U8", &[1], 8, 9)];
    let files = [
        (safetensors::file(&safetensors::header(&items), 9), "a.safetensors"),
        (checkpoint(), "a.pt"),
        (legacy::checkpoint().bytes(), "b.pt"),
        (zip::simple(&[zip::entry("a.npy", &npy::array("<f4", &[2], 8))]), "a.npz"),
        (gguf::file(&[gguf::tensor("a", &[2], 0, 8)], 32), "a.gguf"),
    ];
    for (good, name) in files {
        let mut bytes = good.clone();
        for bit in 0..8 * good.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let peak = peak(&bytes, name);
            assert!(peak < (128 << 10) + 64 * good.len(), "{name}, bit {bit}: {peak} for {}", good.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
    // Hostile pickles, a megabyte each: everything that repeats cheaply.
    let tensor = Pickle::new().whole("0", &[2]).raw(b"q\0").text(&"k".repeat(1000)).raw(b"q\x0100}(");
    let fat = Pickle::new().tensor("FloatStorage", "0", 2, (0, &[1; 64], &[1; 64])).raw(b"q\0").raw(b"0}(");
    let repeats: [(Pickle, &[u8], &[u8]); 8] = [
        (Pickle::new(), b"N", b"."),
        (Pickle::new(), b"(", b"."),
        (Pickle::new(), b")", b"."),
        (Pickle::new(), b"]", b"."),
        (Pickle::new(), b"}q\0", b"."),
        (Pickle::new(), b"N\x94", b"."),
        (tensor, b"h\x01h\0", b"u."),
        (fat, b"K\0h\0", b"u."),
    ];
    for (start, repeated, end) in repeats {
        let pickle = start.raw(&repeated.repeat((1 << 20) / repeated.len())).raw(end).0;
        let file = pt(&pickle, &[("0", 8)]);
        let peak = peak(&file, "a.pt");
        assert!(peak < 160 << 20, "{repeated:?}: {} MiB", peak >> 20);
        eprintln!("{:?}: {} MiB", String::from_utf8_lossy(repeated), peak >> 20);
        let mut old = legacy::checkpoint();
        (old.keys, old.object) = (pickle.clone(), pickle);
        for file in [old.bytes(), legacy::Legacy { object: legacy::checkpoint().object, ..old }.bytes()] {
            let peak = self::peak(&file, "b.pt");
            assert!(peak < 160 << 20, "{repeated:?}, before the zip: {} MiB", peak >> 20);
        }
    }
}
