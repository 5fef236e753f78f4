//! Byte-level primitives of canonical objects: varints, strings, floats.

use crate::Id;
use thiserror::Error;

/// Why bytes are not a canonical object.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ObjectError {
    /// The bytes end too early.
    #[error("object is truncated")]
    Truncated,
    /// Bytes are left over, a number is over-long, an order is wrong: something no writer produces.
    #[error("object is not canonical: {0}")]
    NotCanonical(&'static str),
    /// The object was written by a newer version.
    #[error("object version {0} is newer than this program reads")]
    Version(u8),
    /// A new version or tag has a field longer than its limit.
    #[error("the {what} has {len} bytes; {most} are the most")]
    TooLong {
        /// The field.
        what: &'static str,
        /// Its length.
        len: usize,
        /// Its limit.
        most: usize,
    },
    /// A name that could not be checked out safely.
    #[error("unsafe or invalid name {name:?}: {reason}")]
    Name {
        /// The offending name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Appends canonical primitives to a byte vector.
#[derive(Debug, Default)]
pub struct Writer {
    /// What has been written.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.bytes.push(v);
    }

    /// LEB128, shortest form.
    pub fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.bytes.push((v as u8 & 0x7f) | 0x80);
            v >>= 7;
        }
        self.bytes.push(v as u8);
    }

    /// Zig-zag then LEB128.
    pub fn signed(&mut self, v: i64) {
        self.varint(((v << 1) ^ (v >> 63)) as u64);
    }

    /// Eight bytes, little-endian, of the IEEE bits.
    pub fn f64(&mut self, v: f64) {
        self.bytes.extend_from_slice(&v.to_le_bytes());
    }

    /// Length as varint, then the bytes.
    pub fn blob(&mut self, v: &[u8]) {
        self.varint(v.len() as u64);
        self.bytes.extend_from_slice(v);
    }

    /// Length as varint, then UTF-8.
    pub fn str(&mut self, v: &str) {
        self.blob(v.as_bytes());
    }

    /// The 32 bytes of an id.
    pub fn id(&mut self, v: &Id) {
        self.bytes.extend_from_slice(v.as_bytes());
    }

    /// Count as varint, then each as varint.
    pub fn dims(&mut self, v: &[u64]) {
        self.varint(v.len() as u64);
        for &d in v {
            self.varint(d);
        }
    }
}

/// Reads what [`Writer`] writes, refusing every other spelling.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], ObjectError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(ObjectError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ObjectError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(ObjectError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, ObjectError> {
        self.array().map(u8::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, ObjectError> {
        self.array().map(u64::from_le_bytes)
    }

    /// LEB128 in its shortest form.
    pub fn varint(&mut self) -> Result<u64, ObjectError> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            if shift == 63 && b > 1 {
                return Err(ObjectError::NotCanonical("number above 64 bits"));
            }
            v |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                if b == 0 && shift > 0 {
                    return Err(ObjectError::NotCanonical("over-long number"));
                }
                return Ok(v);
            }
        }
        Err(ObjectError::NotCanonical("number above 64 bits"))
    }

    /// A count of things that take at least `min_bytes` each: it cannot promise more than the bytes that are left.
    pub fn count(&mut self, min_bytes: usize) -> Result<usize, ObjectError> {
        let n = self.varint()?;
        match usize::try_from(n) {
            Ok(n) if n <= self.rest.len() / min_bytes.max(1) => Ok(n),
            _ => Err(ObjectError::Truncated),
        }
    }

    /// Zig-zag LEB128.
    pub fn signed(&mut self) -> Result<i64, ObjectError> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// IEEE bits, little-endian.
    pub fn f64(&mut self) -> Result<f64, ObjectError> {
        self.array().map(f64::from_le_bytes)
    }

    /// Length-prefixed bytes.
    pub fn blob(&mut self) -> Result<&'a [u8], ObjectError> {
        let n = self.count(1)?;
        self.take(n)
    }

    /// Length-prefixed UTF-8.
    pub fn str(&mut self) -> Result<String, ObjectError> {
        std::str::from_utf8(self.blob()?).map(str::to_owned).map_err(|_| ObjectError::NotCanonical("text is not UTF-8"))
    }

    /// 32 bytes.
    pub fn id(&mut self) -> Result<Id, ObjectError> {
        self.array().map(Id::from_bytes)
    }

    /// Counted varints.
    pub fn dims(&mut self) -> Result<Vec<u64>, ObjectError> {
        let n = self.count(1)?;
        (0..n).map(|_| self.varint()).collect()
    }

    /// Checks the leading version byte of an object.
    pub fn version(&mut self, newest: u8) -> Result<u8, ObjectError> {
        match self.u8()? {
            0 => Err(ObjectError::NotCanonical("version 0")),
            v if v > newest => Err(ObjectError::Version(v)),
            v => Ok(v),
        }
    }

    /// Ends the object.
    pub fn finish(self) -> Result<(), ObjectError> {
        if self.rest.is_empty() { Ok(()) } else { Err(ObjectError::NotCanonical("bytes after the end")) }
    }
}
