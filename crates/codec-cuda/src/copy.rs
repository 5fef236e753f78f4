//! Gather and scatter copies: pieces of device memory brought to the host in one transfer, and host bytes spread out on
//! the device.

use crate::{Kernel, Result, Session, View};
use std::ops::Range;

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
    places: Vec<Range<usize>>,
}

impl Gathered {
    /// Piece `i`.
    pub(crate) fn get(&self, i: usize) -> &[u8] {
        &self.bytes[self.places.get(i).cloned().unwrap_or_default()]
    }
}

/// Brings pieces to the host, in order.
pub(crate) fn gather(session: &Session, pieces: &[View<'_>]) -> Result<Vec<Vec<u8>>> {
    let all = gather_together(session, pieces.iter().map(std::slice::from_ref))?;
    Ok((0..pieces.len()).map(|i| all.get(i).to_vec()).collect())
}

/// As [`gather`], lists of pieces, those of each end to end.
pub(crate) fn gather_lists(session: &Session, lists: &[Vec<View<'_>>]) -> Result<Vec<Vec<u8>>> {
    let all = gather_together(session, lists)?;
    Ok((0..lists.len()).map(|i| all.get(i).to_vec()).collect())
}

/// As [`gather_lists`], in one piece of memory.
pub(crate) fn gather_together<'v>(
    session: &Session,
    lists: impl IntoIterator<Item = impl AsRef<[View<'v>]>>,
) -> Result<Gathered> {
    let (mut at, mut copies, mut places) = (0, Vec::new(), Vec::new());
    for list in lists {
        let start = at;
        for piece in list.as_ref() {
            copies.push([piece.address(), at as u64, piece.len() as u64]);
            at += piece.len();
        }
        places.push(start..at);
        at = at.next_multiple_of(ALIGN);
    }
    if at == 0 {
        return Ok(Gathered { bytes: Vec::new(), places });
    }
    let room = session.buffer(at)?;
    copies.iter_mut().for_each(|c| c[1] += room.address());
    run(session, &copies)?;
    Ok(Gathered { bytes: session.download(room.view())?, places })
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
