//! Products of compressed weights with a few vectors, decoded in registers.

use crate::{
    Arg, DeviceError, Kernel,
    device::Stream,
    weights::{Queue, Table, Weights, blocks::fits, encode, failed, of_dtype},
};
use mdl_codec::{CodecError, Result as CodecResult, Span};

/// Vectors that are multiplied at once, and the kernels for f32, f16 and bf16.
const MULTIPLY: [(u32, [Kernel; 3]); 4] = [
    (1, kernels(["matvec_f32_1", "matvec_f16_1", "matvec_bf16_1"])),
    (4, kernels(["matvec_f32_4", "matvec_f16_4", "matvec_bf16_4"])),
    (8, kernels(["matvec_f32_8", "matvec_f16_8", "matvec_bf16_8"])),
    (16, kernels(["matvec_f32_16", "matvec_f16_16", "matvec_bf16_16"])),
];
const FINISH: [Kernel; 3] = kernels(["matvec_finish_f32", "matvec_finish_f16", "matvec_finish_bf16"]);
/// Threads of a block.
const THREADS: u32 = 256;

const fn kernels(names: [&'static str; 3]) -> [Kernel; 3] {
    [Kernel::new("matvec", names[0]), Kernel::new("matvec", names[1]), Kernel::new("matvec", names[2])]
}

/// What a product works with: vectors, and room for sums. All are on the weights' device.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Columns of the matrix, which lies row by row.
    pub cols: usize,
    /// Vectors, 1 to [`MOST`](Product::MOST).
    pub batch: usize,
    /// The vectors, of `cols` elements each.
    pub x: Span,
    /// The products: a vector of as many elements as the matrix has rows for each.
    pub y: Span,
    /// Memory of [`Weights::scratch`] bytes, aligned to 4, that no other work on another queue uses meanwhile.
    pub scratch: Span,
}

impl Product {
    /// Most vectors of a product.
    pub const MOST: usize = 32;
}

/// Vectors that are multiplied at once, and with which kernels.
fn width(batch: usize) -> (u32, [Kernel; 3]) {
    let fits = |(w, _): &(u32, [Kernel; 3])| *w as usize >= batch;
    MULTIPLY.into_iter().find(fits).unwrap_or(MULTIPLY[MULTIPLY.len() - 1])
}

impl Weights {
    /// Rows of a matrix of so many columns.
    fn rows(&self, cols: usize) -> CodecResult<usize> {
        match self.n.checked_div(cols).filter(|rows| rows * cols == self.n && self.n > 0) {
            Some(rows) => Ok(rows),
            None => Err(CodecError::BadInput("whole rows")),
        }
    }

    /// Bytes of memory that a product needs for its sums.
    ///
    /// # Errors
    /// [`CodecError::BadInput`]: no whole rows, or not 1 to [`Product::MOST`] vectors; [`CodecError::Device`]: weights
    /// that are not multiplied.
    pub fn scratch(&self, cols: usize, batch: usize) -> CodecResult<usize> {
        let rows = self.rows(cols)?;
        if batch == 0 || batch > Product::MOST {
            return Err(CodecError::BadInput("1 to 32 vectors"));
        }
        let chunks = match self.table {
            Table::Blocks { chunks, .. } => chunks,
            Table::Plain => return Err(CodecError::Device("weights of this type are decoded only".to_owned())),
            Table::Lost => return Err(encode::lost()),
        };
        let width = width(batch).0 as usize;
        Ok(4 * (chunks as usize + rows) * batch.next_multiple_of(width))
    }

    /// Multiplies the weights, a matrix, with vectors of their dtype. Returns when the work is on the queue. Sums are
    /// made in f32 in an order that only the shape and the weights' blocks decide; `matvec.cu` states it.
    ///
    /// # Errors
    /// As [`scratch`](Self::scratch) and [`decode`](Self::decode).
    pub fn multiply(&self, queue: Queue, product: &Product) -> CodecResult<()> {
        let Product { cols, batch, x, y, scratch } = *product;
        let (size, rows) = (self.dtype().size(), self.rows(cols)?);
        let needed = self.scratch(cols, batch)?;
        if x.len() != batch * cols * size || y.len() != batch * rows * size || scratch.len() < needed {
            return Err(CodecError::BadInput("vectors, products and memory as long as the matrix and the batch need"));
        }
        [x, y, scratch].into_iter().try_for_each(|span| self.check(span))?;
        if !scratch.address().is_multiple_of(4) {
            return Err(CodecError::BadInput("memory for sums that is aligned to 4"));
        }
        let Table::Blocks { blocks, tiles, firsts, tile_count, chunks } = self.table else {
            return Err(failed(DeviceError::Unsupported("weights of this type")));
        };
        let (width, kernels) = width(batch);
        let pair = of_dtype(self.dtype(), kernels).zip(of_dtype(self.dtype(), FINISH));
        let (multiply, finish) = pair.ok_or(failed(DeviceError::Unsupported("weights of this type")))?;
        let [rows, cols, batch] = [rows, cols, batch].map(fits);
        let (rows, cols, batch) = (rows.map_err(failed)?, cols.map_err(failed)?, batch.map_err(failed)?);
        let count = chunks.checked_add(rows).ok_or(CodecError::BadInput("so many rows"))?;
        let (sums, on) = (Arg::Ptr(scratch.address()), Stream::Lent(queue.0));
        let args = [blocks, tiles, x.address()].map(Arg::Ptr).into_iter();
        let args: Vec<Arg> = args.chain([sums]).chain([cols, batch, count].map(Arg::U32)).collect();
        let groups = batch.div_ceil(width);
        self.driver.launch(on, multiply, (tile_count, groups), THREADS, &args).map_err(failed)?;
        let args = [Arg::Ptr(firsts), sums, Arg::Ptr(y.address())].into_iter();
        let args: Vec<Arg> = args.chain([chunks, rows, cols, width, batch].map(Arg::U32)).collect();
        let threads = u64::from(rows) * u64::from(batch);
        let grid = fits(threads.div_ceil(THREADS.into()) as usize).map_err(failed)?;
        self.driver.launch(on, finish, (grid, 1), THREADS, &args).map_err(failed)
    }
}
