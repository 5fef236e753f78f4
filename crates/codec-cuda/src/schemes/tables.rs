//! rANS tables built on the device from frequencies, which are an eighth (encoding) or a thirtieth (decoding) of their
//! size.

use crate::{Buffer, Kernel, Result, Session, View};

const ENCODE: Kernel = Kernel::new("tables", "tables_encode");
const DECODE: Kernel = Kernel::new("tables", "tables_decode");
/// Bytes of a context's table for encoding, and for decoding.
pub(crate) const SYMBOLS: usize = 256 * 16;
pub(crate) const SLOTS: usize = 4096 * 4;

/// Tables, a run of contexts for each list of frequencies.
#[derive(Debug)]
pub(crate) struct Tables<'s> {
    room: Buffer<'s>,
    /// Where each run begins, and where the last one ends.
    starts: Vec<usize>,
}

impl Tables<'_> {
    /// The tables of list `i`.
    pub(crate) fn get(&self, i: usize) -> View<'_> {
        let at = |i: usize| self.starts.get(i).copied().unwrap_or_default();
        self.room.view().part(at(i)..at(i + 1))
    }
}

/// Tables for encoding.
pub(crate) fn encoding<'s>(session: &'s Session, lists: &[&[[u16; 256]]]) -> Result<Tables<'s>> {
    make(session, ENCODE, SYMBOLS, lists)
}

/// Tables for decoding; the frequencies of every context add up to 4096.
pub(crate) fn decoding<'s>(session: &'s Session, lists: &[&[[u16; 256]]]) -> Result<Tables<'s>> {
    make(session, DECODE, SLOTS, lists)
}

fn make<'s>(session: &'s Session, kernel: Kernel, each: usize, lists: &[&[[u16; 256]]]) -> Result<Tables<'s>> {
    let mut starts = vec![0];
    let mut bytes = Vec::new();
    for list in lists {
        starts.push(starts.last().copied().unwrap_or_default() + list.len() * each);
        bytes.extend(list.as_flattened().iter().flat_map(|f| f.to_le_bytes()));
    }
    let room = session.buffer(starts.last().copied().unwrap_or_default())?;
    let freqs = session.upload(&bytes)?;
    let contexts = bytes.len() / 512;
    session.launch(kernel, (contexts as u32, 1), 256, &[freqs.arg(), room.arg()])?;
    Ok(Tables { room, starts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Noise, session};
    use mdl_codec::engine_internals::{DecTable, EncTable, normalise};

    #[test]
    fn they_are_those_of_the_host() {
        let (session, mut noise) = (session(), Noise(5));
        let mut counts = vec![[1u32; 256], [0; 256], [0; 256]];
        counts[1][7] = 3;
        counts[2][0] = 1 << 20;
        counts[2][255] = 1;
        counts.extend((0..4).map(|_| std::array::from_fn(|_| (noise.next() & noise.next() & 3) as u32)));
        let lists: Vec<Vec<[u16; 256]>> = [0..3, 3..3, 3..7].map(|r| counts[r].iter().map(normalise).collect()).into();
        let lists: Vec<&[[u16; 256]]> = lists.iter().map(Vec::as_slice).collect();
        let (there, slots) = (encoding(&session, &lists).unwrap(), decoding(&session, &lists).unwrap());
        for (i, list) in lists.iter().enumerate() {
            let words: Vec<u8> = EncTable::new(list).words().iter().flat_map(|w| w.to_le_bytes()).collect();
            assert_eq!(session.download(there.get(i)).unwrap(), words);
            let table = DecTable::new(list).unwrap();
            assert_eq!(session.download_u32(slots.get(i)).unwrap(), table.slots());
        }
    }
}
