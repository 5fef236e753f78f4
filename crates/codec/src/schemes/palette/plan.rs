//! The plan of a palette segment, made from its symbol counts: contexts, tables, scheme, header.

use crate::{
    Dtype, Scheme,
    entropy::{ByExponent, COST_BITS, Context, Grid, contexts, normalise, put_varint, rans, tables},
    schemes::{
        Numbers, delta,
        palette::{MAX, family, find, turn},
    },
};

pub use crate::schemes::palette::{
    Table,
    decode::Reader,
    family::{Reader as FamilyReader, plan::FamilyPlan},
};

/// How a segment is coded alone or against one base.
#[derive(Debug)]
pub struct PalettePlan {
    list: Vec<Context>,
    with_base: bool,
    /// In 1/1024 bits, exceptions apart.
    cost: u64,
}

/// What goes before the blocks, and what coding the blocks needs.
#[derive(Debug)]
pub struct Head {
    /// Also the first of `bytes`.
    pub scheme: Scheme,
    /// From the scheme byte to the last table.
    pub bytes: Vec<u8>,
    /// The contexts' tables; with strangers, theirs is the last.
    pub freqs: Vec<[u16; 256]>,
    /// The context of each place, or of each raw context.
    pub map: Vec<u8>,
    /// How many contexts the map has.
    pub contexts: u8,
    /// log2 of the lanes of a stream.
    pub lanes: u8,
}

impl Head {
    /// What goes before a stream of so many bytes.
    pub fn before_stream(&self, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        match self.scheme {
            Scheme::PaletteDelta2 => put_varint(&mut out, len as u64),
            _ => out.extend_from_slice(&(len as u32).to_le_bytes()),
        }
        out
    }
}

impl Table {
    /// The table of a segment, by a sample of it, if it has few values.
    pub fn find(dtype: Dtype, sample: &[u8]) -> Option<Table> {
        find::table(Numbers::from_dtype(dtype), sample, |_| true)
    }

    /// The values' monotone integers, signed, rising.
    pub fn ordered(&self) -> Vec<i64> {
        self.values.iter().map(|&v| self.numbers.ordered(v)).collect()
    }

    /// Low bytes that are zero in all exceptions, by the or of their bits.
    pub fn zero_low_bytes(&self, bits: u64) -> u8 {
        Table::zero_bytes(self.numbers, std::iter::once(bits))
    }

    /// Lengths of the axes of raw contexts, where there are two bases.
    pub fn axes(&self) -> [usize; 3] {
        family::axes(self)
    }
}

impl PalettePlan {
    /// By counts of places (or the exception) and, with a base, of symbols in the context of its places.
    pub(super) fn new(alone: &ByExponent, joint: Option<&ByExponent>) -> PalettePlan {
        let (list, cost) = contexts::cluster(alone);
        match joint.map(contexts::cluster) {
            Some((list, with)) if with < cost => PalettePlan { list, with_base: true, cost: with },
            _ => PalettePlan { list, with_base: false, cost },
        }
    }

    /// By counts of symbols: a row of one more than there are values without a base, such a row for each place with
    /// one.
    pub fn of_counts(table: &Table, counts: &[u32], with_base: bool) -> PalettePlan {
        let values = table.values.len();
        let (mut alone, mut joint) = ([0u32; 256], ByExponent::new());
        for (place, row) in counts.chunks_exact(values + 1).enumerate().take(MAX) {
            for (s, &n) in row.iter().enumerate() {
                alone[usize::from(turn(s as u8, place as u8, values))] += n;
            }
            if row.iter().any(|&n| n > 0) {
                let mut wide = [0; 256];
                wide[..=values].copy_from_slice(row);
                joint.insert(place as u8, &wide);
            }
        }
        let mut by = ByExponent::new();
        by.insert(0, &alone);
        PalettePlan::new(&by, with_base.then_some(&joint))
    }

    /// Whether the base is the context.
    pub fn with_base(&self) -> bool {
        self.with_base
    }

    /// Whether two bases are better for a segment of `n` numbers, so many of them exceptions with `zero` low bytes
    /// of zeros.
    pub fn loses_to(&self, family: &FamilyPlan, table: &Table, n: usize, exceptions: usize, zero: u8) -> bool {
        let each = table.numbers.size - usize::from(zero);
        let bytes = exceptions * each + Grid::new(n).blocks() * rans::STATE_BYTES;
        family.cost() < self.cost + ((8 * bytes as u64) << COST_BITS)
    }

    /// The header of a segment whose exceptions have `zero` low bytes of zeros.
    pub fn head(&self, table: &Table, zero: u8) -> Head {
        let freqs: Vec<[u16; 256]> = self.list.iter().map(|c| normalise(&c.counts)).collect();
        let scheme = if self.with_base { Scheme::PaletteDelta } else { Scheme::Palette };
        let mut bytes = vec![scheme as u8, Grid::new(0).log];
        table.put(&mut bytes);
        bytes.push(zero);
        if self.with_base {
            bytes.push(self.list.len() as u8);
            bytes.extend(self.list.iter().skip(1).map(|c| c.first));
        }
        freqs.iter().for_each(|f| tables::put(&mut bytes, f, true));
        Head {
            scheme,
            bytes,
            map: delta::context_map(self.list.iter().map(|c| c.first)).to_vec(),
            contexts: freqs.len() as u8,
            freqs,
            lanes: rans::LANES.ilog2() as u8,
        }
    }
}

/// Numbers of a segment in each of its blocks, as encoders cut it.
pub fn blocks(n: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let grid = Grid::new(n);
    (0..grid.blocks()).map(move |b| grid.elements(b))
}
