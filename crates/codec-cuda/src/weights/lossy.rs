//! Parts in NeuZip's lossy form as blocks of weights: exponents, packed signs and mantissas, a coefficient for each
//! block.

use crate::{
    DeviceError, Result,
    weights::{
        blocks::{Block, Contents, Source, source, within},
        planes::lossy_cut,
    },
};
use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Scheme,
    engine_internals::{Cursor, PlaneDecoder, Reader},
    quant::neuzip::{BLOCKS, KEPT},
    scheme_of,
};

/// Elements of a part, the last one excepted.
pub(super) const PART: usize = 1 << 18;

/// Adds the blocks of a part of `n` elements, of which the first is number `first` of the tensor.
///
/// # Errors
/// The part is damaged.
pub(super) fn add<'a>(
    contents: &mut Contents<'a>,
    cpu: &CpuEngine,
    encoded: &'a [u8],
    first: usize,
    n: usize,
) -> Result<()> {
    const BAD: DeviceError = DeviceError::Corrupt("no such mantissas or blocks");
    let mut cursor = Cursor::new(encoded);
    let (keep, log) = (u32::from(cursor.u8()?), u32::from(cursor.u8()?));
    let block = 1usize.checked_shl(log).unwrap_or(0);
    if !KEPT.contains(&keep) || !BLOCKS.contains(&block) || n > PART {
        return Err(BAD);
    }
    let coded = cursor.u32()? as usize;
    let exponents = cursor.take(coded)?;
    let mantissas = cursor.take(n.div_ceil(block))?;
    let bits = 1 + keep as usize;
    let rests = cursor.take((n * bits).div_ceil(8))?;
    cursor.done()?;
    let body = contents.put(encoded);
    let place = |piece: &[u8]| body + within(encoded, piece);
    let (scales, rests) = (place(mantissas), place(rests));
    for block in symbols(contents, cpu, exponents, place(exponents), n)? {
        let start = block.first;
        contents.push(Block {
            first: first + start,
            // Blocks begin at multiples of 128 numbers.
            fields: Some(rests + start * bits / 8),
            scales: Some(scales),
            scale_log: log,
            cut: lossy_cut(keep),
            ..block
        });
    }
    Ok(())
}

/// The exponents, block by block as their segment has them; `first` counts from the part's beginning.
fn symbols(contents: &mut Contents<'_>, cpu: &CpuEngine, encoded: &[u8], at: usize, n: usize) -> Result<Vec<Block>> {
    let scheme = scheme_of(encoded)?;
    if scheme.bases() > 0 {
        return Err(DeviceError::Corrupt("exponents that stand on others"));
    }
    if scheme == Scheme::Planes {
        let reader = Reader::new(Dtype::U8, 1, &encoded[1..], n)?;
        if let Some(coder) = reader.coders.first().filter(|c| !matches!(c, PlaneDecoder::Huffman(_))) {
            let freqs = match coder {
                PlaneDecoder::Rans(table) => Some(contents.freqs(table)),
                _ => None,
            };
            return (0..reader.grid.blocks())
                .map(|b| {
                    let (pieces, range) = (reader.pieces(b)?, reader.grid.elements(b));
                    let stream = pieces.planes.first().copied().unwrap_or_default();
                    let source = source(coder, stream).unwrap_or_default();
                    let points = matches!(source, Source::Rans(_)).then(|| contents.points(range.len()));
                    let symbols = Some(at + within(encoded, stream));
                    let (first, n) = (range.start, range.len());
                    Ok(Block { source, symbols, points, freqs, first, n, ..Block::default() })
                })
                .collect();
        }
    }
    let mut raw = vec![0; n];
    cpu.decode(Dtype::U8, encoded, Bases::NONE, &mut raw)?;
    let symbols = Some(contents.put(raw));
    Ok(vec![Block { source: Source::Raw, symbols, n, ..Block::default() }])
}
