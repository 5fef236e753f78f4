//! Keys and prefixes of stored values: checked, so that they stay below the root of a storage.

use crate::{RepoError, Result};
use mdl_objects::Id;
use std::{
    borrow::{Borrow, Cow},
    fmt,
    ops::Deref,
};

/// Bytes of a key at most: what object stores take.
const MAX: usize = 1024;

/// The name of a stored value: parts with `/` between them, none of which is empty, `.` or `..`, and no NUL, control
/// character or backslash anywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Cow<'static, str>);

/// A common prefix of keys: empty, or a key and a `/` behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(Cow<'static, str>);

/// Whether the bytes of a text are those of a key.
const fn is_key(text: &[u8]) -> bool {
    let (mut i, mut start) = (0, 0);
    while i <= text.len() {
        if i == text.len() || text[i] == b'/' {
            let len = i - start;
            let dots =
                (len == 1 && text[start] == b'.') || (len == 2 && text[start] == b'.' && text[start + 1] == b'.');
            if len == 0 || dots {
                return false;
            }
            start = i + 1;
        } else if text[i] < b' ' || text[i] == 0x7f || text[i] == b'\\' {
            return false;
        } else if i > 0 && text[i - 1] == 0xc2 && text[i] >= 0x80 && text[i] < 0xa0 {
            // U+0080 to U+009F: control characters, too.
            return false;
        }
        i += 1;
    }
    text.len() <= MAX
}

fn refused(text: &str) -> RepoError {
    // No more of it than is read: it may be long.
    let shown: String = text.chars().take(80).collect();
    RepoError::usage(format!("{shown:?} is no name of a stored value"), "")
}

/// What keys and prefixes have in common.
macro_rules! checked_text {
    ($type:ident, $is_one:ident) => {
        impl $type {
            /// One that is fixed in the program; in a constant the compiler checks it.
            ///
            /// # Panics
            /// It is none.
            pub const fn fixed(text: &'static str) -> $type {
                assert!($is_one(text.as_bytes()), "no key or prefix");
                $type(Cow::Borrowed(text))
            }

            /// One that is made of other texts; `Usage` where it is none.
            pub fn parse(text: impl Into<String>) -> Result<$type> {
                let text = text.into();
                match $is_one(text.as_bytes()) {
                    true => Ok($type(Cow::Owned(text))),
                    false => Err(refused(&text)),
                }
            }

            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $type {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_text!(Key, is_key);
checked_text!(Prefix, is_prefix);

impl Key {
    /// The prefix of the keys below this one.
    pub fn below(&self) -> Prefix {
        Prefix(Cow::Owned(format!("{}/", self.0)))
    }
}

impl Prefix {
    /// The empty prefix, of every key.
    pub const ALL: Prefix = Prefix(Cow::Borrowed(""));

    /// The key named by a hash. Hexadecimal digits are valid in every key, and `suffix` is fixed in the program.
    pub fn hashed(&self, hash: &Id, suffix: &'static str) -> Key {
        Key(Cow::Owned(format!("{}{hash}{suffix}", self.0)))
    }

    /// The key with this name below it; `Usage` where the name is no part of a key.
    pub fn key(&self, name: &str) -> Result<Key> {
        Key::parse(format!("{}{name}", self.0))
    }
}

const fn is_prefix(text: &[u8]) -> bool {
    match text.split_last() {
        None => true,
        Some((b'/', key)) => is_key(key),
        Some(_) => false,
    }
}

/// As their texts are ordered and hashed, so are keys.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str> + ?Sized> PartialEq<T> for Key {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_leaves_the_root_is_a_key() {
        let absolute = ["/", "/dev/zero", "//a", "/etc/passwd"];
        let upward = ["..", "../a", "a/..", "a/../b", ".", "./a", "a/.", "a/./b", "..\\a", "a\\b"];
        let empty = ["", "a/", "a//b"];
        let odd = ["a\0b", "a\nb", "\x7f", "a\u{85}b", "refs/\u{9f}"];
        for text in [&absolute[..], &upward, &empty, &odd].concat() {
            assert!(Key::parse(text).is_err(), "{text:?}");
            assert!(Prefix::parse(format!("{text}/")).is_err(), "{text:?}/");
            assert!(Prefix::fixed("refs/").key(text).is_err(), "{text:?} below");
        }
        assert!(Key::parse("x".repeat(MAX)).is_ok() && Key::parse("x".repeat(MAX + 1)).is_err());
    }

    #[test]
    fn what_repositories_use_are_keys() {
        for text in ["HEAD", "refs/heads/a/b", "logs/refs%2Fheads%2Fa", "o/a b+c", "o/\u{e9}", "...", "a/..b", "a/b."] {
            assert_eq!(Key::parse(text).expect("a key"), text);
        }
        assert_eq!(Key::fixed("a/b").below().key("c").expect("below"), "a/b/c");
        assert!(Prefix::parse("").is_ok() && Prefix::parse("a/").is_ok() && Prefix::parse("a").is_err());
    }
}
