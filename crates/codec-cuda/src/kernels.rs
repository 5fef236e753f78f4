//! Kernel sources, as text for NVRTC and the shim.

/// Files of kernels, and what they include.
const FILES: &[(&str, &str)] = &[
    ("diff.cuh", include_str!("../kernels/diff.cuh")),
    ("lattice.cuh", include_str!("../kernels/lattice.cuh")),
    ("numbers.cuh", include_str!("../kernels/numbers.cuh")),
    ("palette.cuh", include_str!("../kernels/palette.cuh")),
    ("planes.cuh", include_str!("../kernels/planes.cuh")),
    ("prelude.cuh", include_str!("../kernels/prelude.cuh")),
    ("rans.cuh", include_str!("../kernels/rans.cuh")),
    ("rans_few.cuh", include_str!("../kernels/rans_few.cuh")),
    ("blake3.cu", include_str!("../kernels/blake3.cu")),
    ("copy.cu", include_str!("../kernels/copy.cu")),
    ("delta.cu", include_str!("../kernels/delta.cu")),
    ("deviation.cu", include_str!("../kernels/deviation.cu")),
    ("exceptions.cu", include_str!("../kernels/exceptions.cu")),
    ("groups.cu", include_str!("../kernels/groups.cu")),
    ("huffman.cu", include_str!("../kernels/huffman.cu")),
    ("lattice.cu", include_str!("../kernels/lattice.cu")),
    ("lattice_decode.cu", include_str!("../kernels/lattice_decode.cu")),
    ("palette.cu", include_str!("../kernels/palette.cu")),
    ("palette_decode.cu", include_str!("../kernels/palette_decode.cu")),
    ("planes.cu", include_str!("../kernels/planes.cu")),
    ("rans.cu", include_str!("../kernels/rans.cu")),
    ("restore.cu", include_str!("../kernels/restore.cu")),
    ("sketch.cu", include_str!("../kernels/sketch.cu")),
    ("sparse.cu", include_str!("../kernels/sparse.cu")),
    ("tables.cu", include_str!("../kernels/tables.cu")),
];

/// A kernel: its name in the `.cu` file, which is its name everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    /// The file without its ending.
    pub file: &'static str,
    /// The function.
    pub name: &'static str,
}

impl Kernel {
    /// A kernel of a file.
    pub const fn new(file: &'static str, name: &'static str) -> Kernel {
        Kernel { file, name }
    }
}

/// Names of the files with kernels, without their ending.
pub(crate) fn files() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(name, _)| name.strip_suffix(".cu"))
}

/// A file with everything it includes in its place; none where there is no such file.
pub(crate) fn source(file: &str) -> Option<String> {
    let mut out = String::new();
    expand(&format!("{file}.cu"), &mut Vec::new(), &mut out)?;
    Some(out)
}

fn expand(name: &str, seen: &mut Vec<&str>, out: &mut String) -> Option<()> {
    let (name, text) = FILES.iter().find(|(n, _)| *n == name)?;
    if seen.contains(name) {
        return Some(());
    }
    seen.push(name);
    for line in text.lines() {
        match line.strip_prefix("#include \"").and_then(|l| l.strip_suffix('"')) {
            Some(other) => expand(other, seen, out)?,
            None if line == "#pragma once" => {}
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_and_expands() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
        let mut there: Vec<String> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let mut listed: Vec<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        there.sort();
        listed.sort();
        assert_eq!(there, listed);
        for file in files() {
            let text = source(file).unwrap();
            assert!(text.contains("typedef unsigned char u8;") && !text.contains("#include"), "{file}");
        }
    }
}
