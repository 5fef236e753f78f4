//! Pointers of git-lfs: the small file that stands in git for a large one.

use super::is_hex;

/// Longest pointer in bytes: git-lfs takes no longer one for one.
pub const LONGEST: u64 = 1024;

/// What a pointer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// SHA-256 of the large file, in 64 hexadecimal digits.
    pub oid: String,
    /// Its length in bytes.
    pub size: u64,
}

impl Pointer {
    /// A pointer; none: it is a file like any other.
    pub fn parse(bytes: &[u8]) -> Option<Pointer> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LONGEST)?;
        let versions = ["version https://git-lfs.github.com/spec/", "version https://hawser.github.com/spec/"];
        versions.iter().any(|v| text.starts_with(v)).then_some(())?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let oid = value("oid")?.strip_prefix("sha256:")?;
        is_hex(oid, 32).then_some(Pointer { oid: oid.to_owned(), size: value("size")?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_told_from_files() {
        let oid = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 6\n");
        assert_eq!(Pointer::parse(text.as_bytes()), Some(Pointer { oid: oid.to_owned(), size: 6 }));
        for bad in ["", "hello", "version https://git-lfs.github.com/spec/v1\noid sha256:../../x\nsize 6\n"] {
            assert_eq!(Pointer::parse(bad.as_bytes()), None);
        }
        assert_eq!(Pointer::parse(format!("{text}{}", "\n".repeat(1024)).as_bytes()), None);
    }
}
