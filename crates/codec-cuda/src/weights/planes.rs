//! Segments of the scheme "planes" as blocks of weights: heads, fields, exceptions, low bytes in groups.

use crate::{
    DeviceError, Result,
    weights::blocks::{Block, Contents, Source, cut_words, source, within},
};
use mdl_codec::{
    Dtype, Scheme,
    engine_internals::{GROUP, Pieces, PlaneDecoder, Reader, Simd},
    scheme_of,
};
use std::borrow::Cow;

/// Adds the blocks of a segment of `n` elements, of which the first is number `first` of the tensor, and says where its
/// bytes lie. Nothing is added where it is not of the scheme, or none that kernels decode number by number.
///
/// # Errors
/// The segment is damaged.
pub(super) fn add<'a>(
    contents: &mut Contents<'a>,
    dtype: Dtype,
    encoded: &'a [u8],
    first: usize,
    n: usize,
) -> Result<Option<usize>> {
    if scheme_of(encoded)? != Scheme::Planes {
        return Ok(None);
    }
    let size = dtype.size();
    let reader = Reader::new(dtype, size, &encoded[1..], n)?;
    let Some((cut, coder)) = reader.plan.cut.zip(reader.coders.first()) else { return Ok(None) };
    if matches!(coder, PlaneDecoder::Huffman(_)) || reader.plan.low(size) > 0 && !reader.plan.grouped(size) {
        return Ok(None);
    }
    let pieces = (0..reader.grid.blocks()).map(|b| reader.pieces(b)).collect::<mdl_codec::Result<Vec<_>>>()?;
    let lows = pieces.iter().enumerate().map(|(b, p)| Low::read(&reader, p, reader.grid.elements(b).len()));
    let lows = lows.collect::<Result<Vec<_>>>()?;
    let body = contents.put(encoded);
    let freqs = match coder {
        PlaneDecoder::Rans(table) => Some(contents.freqs(table)),
        _ => None,
    };
    for (b, (pieces, low)) in pieces.iter().zip(lows).enumerate() {
        let range = reader.grid.elements(b);
        let stream = pieces.planes.first().copied().unwrap_or_default();
        let place = |piece: &[u8]| Some(body + within(encoded, piece));
        let mut block = Block {
            source: source(coder, stream).unwrap_or_default(),
            symbols: place(stream),
            fields: place(pieces.fields),
            groups: place(pieces.groups),
            freqs,
            first: first + range.start,
            cut: cut_words(cut),
            n: range.len(),
            ..Block::default()
        };
        if let Source::Rans(_) = block.source {
            block.points = Some(contents.points(block.n));
        }
        low.put(contents, &mut block);
        contents.put_exceptions(&mut block, &pieces.exceptions);
        contents.push(block);
    }
    Ok(Some(body))
}

/// Low bytes in groups: counts, and where each group begins; neither where all counts are 0.
#[derive(Debug, Default)]
struct Low {
    counts: Vec<u8>,
    offsets: Vec<u32>,
}

impl Low {
    fn read(reader: &Reader<'_>, pieces: &Pieces<'_>, n: usize) -> Result<Low> {
        const BAD: DeviceError = DeviceError::Corrupt("groups of low bytes do not end where they should");
        let Some((coder, body)) = reader.coders.get(1).zip(pieces.planes.get(1)) else { return Ok(Low::default()) };
        let mut counts = vec![0; n.div_ceil(GROUP)];
        coder.decode_body(Simd::detect(), body, &mut counts)?;
        let (mut offsets, mut at) = (Vec::with_capacity(counts.len()), 0);
        for (g, &count) in counts.iter().enumerate() {
            offsets.push(at as u32);
            let m = (n - g * GROUP).min(GROUP);
            at += match count {
                0 => 2 * m,
                1..=16 => 4 * m.div_ceil(32) * (16 - usize::from(count)),
                _ => return Err(BAD),
            };
        }
        if at != pieces.groups.len() {
            return Err(BAD);
        }
        Ok(if counts.iter().all(|&c| c == 0) { Low::default() } else { Low { counts, offsets } })
    }

    fn put(self, contents: &mut Contents<'_>, block: &mut Block) {
        if !self.counts.is_empty() {
            block.offsets = Some(contents.put_u32(self.offsets));
            block.counts = Some(contents.put(Cow::Owned(self.counts)));
        }
    }
}

/// The cut of lossy forms: `keep` bits and a sign under the exponent.
pub(super) fn lossy_cut(keep: u32) -> [u64; 2] {
    [u64::from(1 + keep) | 16 << 32, 1]
}
