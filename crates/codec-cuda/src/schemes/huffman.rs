//! Huffman coding and decoding on the device.

use crate::{
    Arg, DeviceError, Kernel, Result, Session, View,
    layout::{pair, places},
    schemes::rans::Streams,
};

const ENCODE: Kernel = Kernel::new("huffman", "huffman_encode");
const DECODE: Kernel = Kernel::new("huffman", "huffman_decode");
/// Bits of the longest code.
const LONGEST: usize = 12;
/// Most symbols of a stream that is made: its bits are counted in 32.
const MOST: usize = 1 << 28;

/// A stream to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encode<'a> {
    pub symbols: View<'a>,
    /// Of u32: a code and its length for each symbol.
    pub table: View<'a>,
}

/// A stream to be read into `symbols`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decode<'a> {
    pub symbols: View<'a>,
    /// Of u16: 4,096 slots.
    pub table: View<'a>,
    pub stream: View<'a>,
}

/// Makes streams.
pub(crate) fn encode<'s>(session: &'s Session, jobs: &[Encode<'_>]) -> Result<Streams<'s>> {
    if jobs.iter().any(|j| j.symbols.len() > MOST) {
        return Err(DeviceError::Failed("a plane that is too long for one stream".to_owned()));
    }
    let (starts, len) = places(jobs.iter().map(|j| j.symbols.len() * LONGEST / 8 + 8));
    let room = session.zeroed(len)?;
    let list = session.upload_list(jobs.iter().zip(&starts).map(|(j, start)| {
        let n = j.symbols.len() as u64;
        [j.symbols.address(), j.table.address(), room.address() + *start as u64, n]
    }))?;
    let lengths = session.buffer(4 * jobs.len())?;
    session.launch(ENCODE, (jobs.len() as u32, 1), 256, &[list.arg(), lengths.arg()])?;
    Streams::new(session, room, starts, &lengths)
}

/// Reads streams. Fails where one has a code that is none, or does not end where it should.
pub(crate) fn decode(session: &Session, jobs: &[Decode<'_>]) -> Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let list = session.upload_list(jobs.iter().map(|j| {
        let lengths = pair(j.symbols.len(), j.stream.len());
        [j.symbols.address(), j.table.address(), j.stream.address(), lengths]
    }))?;
    let bad = session.buffer(4 * jobs.len())?;
    let args = [list.arg(), Arg::U32(jobs.len() as u32), bad.arg()];
    session.launch(DECODE, (jobs.len().div_ceil(32) as u32, 1), 32, &args)?;
    session.expect_zeros(bad.view(), "code stream does not end where it should")
}
