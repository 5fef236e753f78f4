//! Kernel sources, as text for NVRTC and the shim.

macro_rules! files {
    ($($name:literal),*) => { &[$(($name, include_str!(concat!("../kernels/", $name)))),*] };
}

/// Files of kernels, and what they include.
const FILES: &[(&str, &str)] = files! {
    "diff.cuh", "lattice.cuh", "numbers.cuh", "palette.cuh", "planes.cuh", "prelude.cuh", "rans.cuh", "rans_few.cuh",
    "weights.cuh", "blake3.cu", "copy.cu", "delta.cu", "deviation.cu", "exceptions.cu", "groups.cu", "huffman.cu",
    "lattice.cu", "lattice_decode.cu", "matvec.cu", "palette.cu", "palette_decode.cu", "planes.cu", "rans.cu",
    "restore.cu", "sketch.cu", "sparse.cu", "tables.cu", "weights.cu"
};

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
