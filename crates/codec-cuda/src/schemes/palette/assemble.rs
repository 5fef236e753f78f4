//! Assembles palette segments on the host from headers of the host and blocks of the device.
//!
//! Blocks are put in their places on the device, with gaps where the host has something to say: every compressed byte
//! crosses the bus once, into the segment that it belongs to.

use crate::{Result, Session, View, copy, layout::places};

/// A block of a segment.
#[derive(Debug)]
pub(super) struct Block<'a> {
    /// What goes before the pieces.
    pub before: Vec<u8>,
    pub pieces: [View<'a>; 2],
}

impl Block<'_> {
    fn len(&self) -> usize {
        self.before.len() + self.pieces.iter().map(View::len).sum::<usize>()
    }
}

/// Of each segment: the header, the lengths of all blocks but the last, the blocks.
pub(super) fn segments(session: &Session, heads: &[&[u8]], blocks: &[Vec<Block<'_>>]) -> Result<Vec<Vec<u8>>> {
    let (starts, len) = places(blocks.iter().map(|b| b.iter().map(Block::len).sum()));
    let room = session.buffer(len)?;
    let mut copies = Vec::new();
    for (list, start) in blocks.iter().zip(&starts) {
        let mut at = *start;
        for block in list {
            at += block.before.len();
            for piece in block.pieces.iter().filter(|p| p.len() > 0) {
                copies.push([piece.address(), room.address() + at as u64, piece.len() as u64]);
                at += piece.len();
            }
        }
    }
    copy::run(session, &copies)?;
    let mut out = Vec::with_capacity(heads.len());
    for ((head, list), start) in heads.iter().zip(blocks).zip(starts) {
        let len: usize = list.iter().map(Block::len).sum();
        let first = head.len() + 4 * list.len().saturating_sub(1);
        let mut segment = vec![0; first + len];
        let (front, back) = segment.split_at_mut(first);
        session.download_into(room.view().part(start..start + len), back)?;
        let (to, lengths) = front.split_at_mut(head.len());
        to.copy_from_slice(head);
        for (to, block) in lengths.as_chunks_mut::<4>().0.iter_mut().zip(list) {
            *to = (block.len() as u32).to_le_bytes();
        }
        let mut rest = back;
        for block in list {
            let (mine, others) = rest.split_at_mut(block.len());
            mine[..block.before.len()].copy_from_slice(&block.before);
            rest = others;
        }
        out.push(segment);
    }
    Ok(out)
}
