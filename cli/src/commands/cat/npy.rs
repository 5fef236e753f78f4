//! The header of a numpy .npy file (version 1.0). Neighbours: the elements follow. It must not know where they come from.

use mdl_codec::Dtype;

/// numpy's name of an element type; those it lacks are raw items of the same size.
fn descr(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F64 => "<f8",
        Dtype::F32 => "<f4",
        Dtype::F16 => "<f2",
        Dtype::BF16 => "|V2",
        Dtype::F8E4M3 | Dtype::F8E5M2 => "|V1",
        Dtype::I8 => "|i1",
        Dtype::I16 => "<i2",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::U8 | Dtype::Opaque => "|u1",
        Dtype::U16 => "<u2",
        Dtype::U32 => "<u4",
        Dtype::U64 => "<u8",
        Dtype::Bool => "|b1",
        Dtype::C64 => "<c8",
        Dtype::C128 => "<c16",
    }
}

/// Magic, version and description, padded so that the elements begin at a multiple of 64.
pub fn header(dtype: Dtype, shape: &[u64]) -> Vec<u8> {
    let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        descr(dtype),
        dims.join(", ")
    );
    let len = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((len as u16).to_le_bytes());
    out.extend(format!("{text:<width$}\n", width = len - 1).bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_aligned_and_say_the_shape() {
        for (shape, text) in [(vec![], "()"), (vec![3], "(3,)"), (vec![2, 3], "(2, 3)")] {
            let h = header(Dtype::F32, &shape);
            assert_eq!(h.len() % 64, 0);
            assert!(String::from_utf8_lossy(&h).contains(text));
            assert_eq!(h.last(), Some(&b'\n'));
        }
    }
}
