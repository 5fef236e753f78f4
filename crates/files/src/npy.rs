//! Reads the header of a NumPy array file.

use crate::{
    bytes::{Trouble, array_at, bad, take, u16_at, u32_at},
    layout::{Extent, Format, Layout, ReadAt, View},
    literal::{Literal, parse},
    resolve::{count, dense_strides},
};
use mdl_codec::Dtype;

/// The first bytes of every array file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header text that is read. NumPy itself refuses 10,000 unless told otherwise.
const MAX_HEADER: u64 = 1 << 20;

/// The layout of a `.npy` file whose magic has been seen.
pub(crate) fn scan(src: &dyn ReadAt) -> Result<Layout, Trouble> {
    let array = read(src, 0, src.size())?;
    let mut layout = Layout { format: Format::Npy, ..Layout::plain() };
    if let Some(array) = array {
        array.push("array", &mut layout);
    }
    Ok(layout)
}

/// One array: where its data are and what they are.
pub(crate) struct Array {
    offset: u64,
    dtype: Dtype,
    /// As the user sees it.
    shape: Vec<u64>,
    fortran: bool,
}

impl Array {
    /// Adds the extent called `name`. A Fortran-ordered array's bytes are those of its transpose, so the extent has the
    /// reversed shape and a strided view says what the user sees.
    pub(crate) fn push(self, name: &str, layout: &mut Layout) {
        let mut stored = self.shape.clone();
        if self.fortran {
            stored.reverse();
            if self.shape != stored {
                let mut strides = dense_strides(&stored);
                strides.reverse();
                layout.views.push(View {
                    name: name.into(),
                    extent: u32::try_from(layout.extents.len()).unwrap_or(u32::MAX),
                    offset: 0,
                    dtype: self.dtype,
                    shape: self.shape,
                    strides,
                });
            }
        }
        layout.extents.push(Extent { offset: self.offset, dtype: self.dtype, shape: stored, name: name.into() });
    }
}

/// The array in the `len` bytes at `at`; `None` where its elements are Python objects.
pub(crate) fn read(src: &dyn ReadAt, at: u64, len: u64) -> Result<Option<Array>, Trouble> {
    let Some((text, data_at)) = header(src, at, len)? else {
        return bad("the array header is cut short (incompletely written?)");
    };
    let room = len - data_at;
    let Some(header) = parse(&text).and_then(Header::from_literal) else {
        return bad("the array header cannot be read");
    };
    let (dtype, shape) = match header.elements() {
        Elements::Objects => return Ok(None),
        Elements::Plain(dtype) => (dtype, header.shape),
        Elements::Sized(size) => match count(&header.shape).and_then(|n| n.checked_mul(size)) {
            Some(bytes) => (Dtype::Opaque, vec![bytes]),
            None => return bad("the array's size overflows"),
        },
        Elements::Unknown => (Dtype::Opaque, vec![room]),
    };
    match dtype.byte_len(&shape) {
        Some(bytes) if bytes <= room => Ok(Some(Array { offset: at + data_at, dtype, fortran: header.fortran, shape })),
        _ => bad(format!("the array does not fit the {room} bytes that follow its header (incompletely written?)")),
    }
}

/// The header's text and the offset of the data from `at`, both within `len`.
fn header(src: &dyn ReadAt, at: u64, len: u64) -> Result<Option<(Vec<u8>, u64)>, Trouble> {
    let Some(fixed) = take(src, at, len.min(12))? else {
        return Ok(None);
    };
    if !fixed.starts_with(MAGIC) {
        return bad("no array magic");
    }
    let (text_len, text_at) = match array_at(&fixed, MAGIC.len()) {
        Some([1, _]) => (u16_at(&fixed, 8).map(u64::from), 10),
        Some([2 | 3, _]) => (u32_at(&fixed, 8).map(u64::from), 12),
        Some([major, _]) => return bad(format!("array format version {major} is unknown")),
        None => return Ok(None),
    };
    let Some(text_len) = text_len.filter(|&n| n <= MAX_HEADER && n <= len - text_at.min(len)) else {
        return Ok(None);
    };
    Ok(take(src, at + text_at, text_len)?.map(|text| (text, text_at + text_len)))
}

struct Header {
    descr: Literal,
    fortran: bool,
    shape: Vec<u64>,
}

impl Header {
    fn from_literal(literal: Literal) -> Option<Header> {
        let Literal::Dict(mut items) = literal else {
            return None;
        };
        let mut field = |name: &str| {
            let mut found = items.extract_if(.., |(key, _)| matches!(key, Literal::Text(text) if text == name));
            let value = found.next()?.1;
            // NumPy writes no header with a key given twice.
            found.next().is_none().then_some(value)
        };
        let (descr, order, shape) = (field("descr")?, field("fortran_order")?, field("shape")?);
        let (Literal::Bool(fortran), Literal::Seq(dims)) = (order, shape) else {
            return None;
        };
        let dim = |dim: Literal| if let Literal::Number(n) = dim { Some(n) } else { None };
        let shape = dims.into_iter().map(dim).collect::<Option<_>>()?;
        Some(Header { descr, fortran, shape })
    }

    fn elements(&self) -> Elements {
        match &self.descr {
            Literal::Text(descr) => Elements::from_descr(descr),
            _ => Elements::Unknown,
        }
    }
}

/// What a type description says about the elements.
enum Elements {
    Plain(Dtype),
    /// So many bytes each, which we do not look into.
    Sized(u64),
    Objects,
    Unknown,
}

impl Elements {
    fn from_descr(descr: &str) -> Elements {
        let (order, rest) = descr.split_at_checked(1).unwrap_or_default();
        let (kind, size) = rest.split_at_checked(1).unwrap_or_default();
        // A size may be followed by a unit, as in `<M8[ns]`.
        let digits = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
        let Ok(size) = size.get(..digits).unwrap_or_default().parse::<u64>() else {
            return if kind == "O" || descr == "O" { Elements::Objects } else { Elements::Unknown };
        };
        let foreign = order == ">" && size > 1 || !matches!(order, "<" | ">" | "|" | "=");
        match plain(kind, size) {
            _ if kind == "O" => Elements::Objects,
            Some(dtype) if !foreign => Elements::Plain(dtype),
            Some(_) => Elements::Sized(size),
            None if kind == "U" => size.checked_mul(4).map_or(Elements::Unknown, Elements::Sized),
            None if matches!(kind, "S" | "V" | "M" | "m" | "f" | "c" | "a") => Elements::Sized(size),
            None => Elements::Unknown,
        }
    }
}

/// NumPy's letter for elements of a type, which goes with their size; none: it lacks the type.
pub fn npy_kind(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F64 | Dtype::F32 | Dtype::F16 => "f",
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => "i",
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => "u",
        Dtype::Bool => "b",
        Dtype::C64 | Dtype::C128 => "c",
        Dtype::Opaque | Dtype::BF16 | Dtype::F8E4M3 | Dtype::F8E5M2 => return None,
    })
}

fn plain(kind: &str, size: u64) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|d| npy_kind(*d) == Some(kind) && d.size() as u64 == size)
}
