//! Gather and scatter copies: pieces of device memory brought to the host in one transfer, and host bytes spread out on
//! the device.

use crate::{
    device::session::{Session, View},
    error::Result,
    kernels::Kernel,
};

const COPY: Kernel = Kernel::new("copy", "copy_all");
/// Alignment of pieces on their way: whole vector loads.
const ALIGN: usize = 16;
/// Bytes that a block of threads copies at a time.
const PART: usize = 16384;
/// Most copies of a launch: rows of a grid.
const ROWS: usize = 65_535;

/// Pieces that were brought to the host.
#[derive(Debug)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Gathered {
    /// Piece `i`.
    pub(crate) fn get(&self, i: usize) -> &[u8] {
        let (at, len) = self.places.get(i).copied().unwrap_or_default();
        &self.bytes[at..at + len]
    }
}

/// Brings pieces to the host, in order.
pub(crate) fn gather(session: &Session, pieces: &[View<'_>]) -> Result<Vec<Vec<u8>>> {
    let all = gather_together(session, pieces)?;
    Ok((0..pieces.len()).map(|i| all.get(i).to_vec()).collect())
}

/// As [`gather`], in one piece of memory.
pub(crate) fn gather_together(session: &Session, pieces: &[View<'_>]) -> Result<Gathered> {
    let mut at = 0;
    let places: Vec<(usize, usize)> = pieces
        .iter()
        .map(|p| {
            let start = at;
            at += p.len().next_multiple_of(ALIGN);
            (start, p.len())
        })
        .collect();
    let room = session.buffer(at)?;
    let copies: Vec<[u64; 3]> = pieces
        .iter()
        .zip(&places)
        .map(|(p, (start, len))| [p.address(), room.address() + *start as u64, *len as u64])
        .collect();
    run(session, &copies)?;
    let bytes = session.download(room.view())?;
    Ok(Gathered { bytes, places })
}

/// Copies on the device: from, to, length.
pub(crate) fn run(session: &Session, copies: &[[u64; 3]]) -> Result<()> {
    for copies in copies.chunks(ROWS) {
        let longest = copies.iter().map(|c| c[2]).max().unwrap_or(0) as usize;
        let list = session.upload_u64(copies.as_flattened())?;
        let columns = longest.div_ceil(PART).min(1024) as u32;
        session.launch(COPY, (columns, copies.len() as u32), 256, &[list.arg()])?;
    }
    Ok(())
}

/// Brings lists of pieces to the host, the pieces of each end to end.
pub(crate) fn gather_lists(session: &Session, lists: &[Vec<View<'_>>]) -> Result<Vec<Vec<u8>>> {
    let mut at = 0;
    let mut copies = Vec::new();
    let mut places = Vec::with_capacity(lists.len());
    for list in lists {
        let start = at;
        for piece in list {
            copies.push([piece.address(), at as u64, piece.len() as u64]);
            at += piece.len();
        }
        places.push(start..at);
        at = at.next_multiple_of(ALIGN);
    }
    if at == 0 {
        return Ok(vec![Vec::new(); lists.len()]);
    }
    let room = session.buffer(at)?;
    copies.iter_mut().for_each(|c| c[1] += room.address());
    run(session, &copies)?;
    let all = session.download(room.view())?;
    Ok(places.into_iter().map(|p| all[p].to_vec()).collect())
}
