//! The header of a numpy .npy file.

use mdl_codec::Dtype;
use mdl_files::npy_kind;

/// numpy's name of an element type; those it lacks are raw items of the same size.
fn descr(dtype: Dtype) -> String {
    match (npy_kind(dtype), dtype.size()) {
        (None, _) if dtype == Dtype::Opaque => "|u1".to_owned(),
        (None, size) => format!("|V{size}"),
        (Some(kind), 1) => format!("|{kind}1"),
        (Some(kind), size) => format!("<{kind}{size}"),
    }
}

/// Head of a .npy file of these elements, row by row: magic, version and description, padded so that they begin at a
/// multiple of 64.
pub fn npy_header(dtype: Dtype, shape: &[u64]) -> Vec<u8> {
    let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let text =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}", descr(dtype), dims.join(", "));
    let length = |before: usize| (before + text.len() + 1).next_multiple_of(64) - before;
    let mut out = b"\x93NUMPY".to_vec();
    let mut len = length(10);
    match u16::try_from(len) {
        Ok(short) => {
            out.extend([1, 0]);
            out.extend(short.to_le_bytes());
        }
        // Thousands of dimensions want the second version.
        Err(_) => {
            len = length(12);
            out.extend([2, 0]);
            out.extend((len as u32).to_le_bytes());
        }
    }
    let end = out.len() + len;
    out.extend(text.bytes());
    out.resize(end - 1, b' ');
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_aligned_and_say_the_shape() {
        for (shape, text) in [(vec![], "()"), (vec![3], "(3,)"), (vec![2, 3], "(2, 3)")] {
            let h = npy_header(Dtype::F32, &shape);
            assert_eq!(h.len() % 64, 0);
            assert!(String::from_utf8_lossy(&h).contains(text));
            assert_eq!(h.last(), Some(&b'\n'));
            assert_eq!(u16::from_le_bytes([h[8], h[9]]) as usize + 10, h.len());
        }
        let long = npy_header(Dtype::F32, &[1; 30_000]);
        assert_eq!((long.len() % 64, long[6]), (0, 2));
        let len = u32::from_le_bytes([long[8], long[9], long[10], long[11]]);
        assert_eq!(len as usize + 12, long.len());
    }
}
