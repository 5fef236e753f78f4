//! Writes `.npy` files.

/// An array file: version, header dict, data.
pub fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY".to_vec();
    out.extend([version, 0]);
    let len = header.len();
    if version == 1 {
        out.extend((len as u16).to_le_bytes());
    } else {
        out.extend((len as u32).to_le_bytes());
    }
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

/// The usual header dict.
pub fn header(descr: &str, fortran: bool, shape: &[u64]) -> String {
    let dims: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let order = if fortran { "True" } else { "False" };
    format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({dims}), }}   \n").replace("(, )", "()")
}

/// A C-ordered array with made-up bytes.
pub fn array(descr: &str, shape: &[u64], bytes: usize) -> Vec<u8> {
    file(1, &header(descr, false, shape), &vec![7; bytes])
}
