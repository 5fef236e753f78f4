//! Compressed weights replaced by new numbers, encoded where they are: only counts, samples and lengths cross the bus.

use crate::{
    CudaEngine, DeviceError, Encode, Result, Session, View, batch, copy,
    engine::view_of,
    resident::segments,
    schemes::planes::{self, Apart, Symbols},
    weights::{
        Block, Part, Table, Weights,
        blocks::{Contents, Source, cut_words},
        failed,
        place::{self, Kept, Sealed},
    },
};
use mdl_codec::{
    CodecError, Device, Dtype, Held, Resident, Result as CodecResult, SEGMENT_BYTES, Span, engine_internals::pays,
};

/// One part in so many of memory is left for the next encoding, which may be longer.
const SLACK: usize = 64;

/// A copy inside the device's memory: from where, to which place in the room.
type Move<'v> = (View<'v>, usize);

impl CudaEngine {
    /// Compresses a tensor that is in the device's memory. What wrote `content` has to be done.
    ///
    /// # Errors
    /// As [`Weights::encode`].
    pub fn compress(&self, dtype: Dtype, content: Span) -> CodecResult<Weights> {
        if !content.len().is_multiple_of(dtype.size()) {
            return Err(CodecError::BadInput("whole elements"));
        }
        let (n, driver) = (content.len() / dtype.size(), self.driver.clone());
        let table = if place::is_fused(dtype) { Table::Lost } else { Table::Plain };
        let room = self.room(if table == Table::Plain { content.len() } else { 0 }).map_err(failed)?;
        let mut weights = Weights { driver, ordinal: self.ordinal, dtype, n, room, table, lossy: false, stored: None };
        weights.encode(self, content)?;
        Ok(weights)
    }
}

impl Weights {
    /// Replaces all elements by those of `content`, which is as long. Encodings are those of [`mdl_codec::Engine`]
    /// without a base. The memory of the old ones is used again where it suffices.
    ///
    /// What wrote `content` and what reads these weights has to be done (wait for the queues); when this returns, the
    /// work here is, too.
    ///
    /// # Errors
    /// As [`Weights::decode`]; weights of few mantissa bits ([`CodecError::Device`]). After an error that is not
    /// [`CodecError::BadInput`] the weights may be lost: `decode` then says so, and `encode` can be tried again.
    pub fn encode(&mut self, engine: &CudaEngine, content: Span) -> CodecResult<()> {
        if content.len() != self.len() || self.lossy {
            return Err(CodecError::BadInput("exact weights, and as many elements"));
        }
        self.check(content)?;
        if self.n == 0 {
            return Ok(());
        }
        if let Table::Plain = self.table {
            let room = view_of(self.room.span()).part(0..content.len());
            return engine.on_session(|s| s.copy(view_of(content), room)).map_err(failed);
        }
        match self.encode_there(engine, content).map_err(failed)? {
            true => Ok(()),
            // Other schemes than planes: the engine's own way, over the host.
            false => self.encode_by_engine(engine, content),
        }
    }

    fn encode_by_engine(&mut self, engine: &CudaEngine, content: Span) -> CodecResult<()> {
        let tensor = Resident { dtype: self.dtype, content, base: None, grandparent: None, lattice: None };
        let done = Device::encode(engine, &[tensor])?.pop().unwrap_or_default();
        let parts: Vec<Part<'_>> = done.iter().map(|e| Part::Segment(&e.bytes)).collect();
        let step = SEGMENT_BYTES / self.dtype.size();
        *self = place::place(engine, self.dtype, self.n, step, &parts).map_err(failed)?;
        Ok(())
    }

    fn encode_there(&mut self, engine: &CudaEngine, content: Span) -> Result<bool> {
        engine.on_session(|session| {
            let whole = view_of(content);
            let part = |r| Encode { dtype: self.dtype, raw: whole.part(r), base: None, grandparent: None };
            let list: Vec<Encode<'_>> = segments(content.len()).map(part).collect();
            let plans = batch::plans(session, &list)?;
            let Some(plans) = plans.into_iter().collect::<Option<Vec<_>>>() else { return Ok(false) };
            let jobs: Vec<_> = list.into_iter().zip(plans).collect();
            let done = planes::apart(session, &jobs, |all| self.take(engine, session, &all))?;
            Ok(done.unwrap_or(false))
        })
    }

    /// Moves the parts of all segments into the room; false, and nothing is done, where one is longer than its bytes.
    fn take(&mut self, engine: &CudaEngine, session: &Session, all: &[Apart<'_>]) -> Result<bool> {
        let (mut contents, mut moves, mut stored) = (Contents::default(), Vec::new(), Vec::new());
        let mut first = 0;
        for apart in all {
            let n = apart.blocks.last().map_or(0, |b| b.elements.end);
            let segment = add(&mut contents, &mut moves, apart, first);
            if !pays(segment.iter().map(Kept::len).sum(), n * self.dtype.size()) {
                return Ok(false);
            }
            stored.push(segment);
            first += n;
        }
        let sealed = Sealed::new(&mut contents)?;
        let needed = contents.layout.len();
        if needed > self.room.len() {
            self.room = engine.room(needed + needed / SLACK)?;
        }
        self.table = Table::Lost;
        let base = view_of(self.room.span());
        let moves: Vec<[u64; 3]> =
            moves.iter().map(|(from, to)| [from.address(), base.address() + *to as u64, from.len() as u64]).collect();
        copy::run(session, &moves)?;
        sealed.write(session, base, &contents)?;
        session.wait()?;
        (self.table, self.stored) = (sealed.table(base), Some(stored));
        Ok(true)
    }

    /// The segments as a repository stores them, of [`SEGMENT_BYTES`] each, brought to the host; none where they are
    /// not kept: weights of few mantissa bits, and of schemes that lie decoded here.
    ///
    /// # Errors
    /// [`CodecError::Device`]: the device failed.
    pub fn segments(&self, engine: &CudaEngine) -> CodecResult<Option<Vec<Vec<u8>>>> {
        let Some(stored) = self.stored.as_ref().filter(|_| !matches!(self.table, Table::Lost)) else { return Ok(None) };
        let base = view_of(self.room.span());
        let places = stored.iter().flatten().filter_map(|s| match s {
            Kept::There(range) => Some(base.part(range.clone())),
            Kept::Here(_) => None,
        });
        let places: Vec<View<'_>> = places.collect();
        let brought = engine.on_session(|session| copy::gather(session, &places)).map_err(failed)?;
        let mut brought = brought.into_iter();
        let mut bytes = |s: &Kept| match s {
            Kept::Here(bytes) => bytes.clone(),
            Kept::There(_) => brought.next().unwrap_or_default(),
        };
        Ok(Some(stored.iter().map(|segment| segment.iter().flat_map(&mut bytes).collect()).collect()))
    }
}

/// Plans a segment whose first element is number `first` of the tensor; says of what its bytes are made.
fn add<'v>(contents: &mut Contents<'_>, moves: &mut Vec<Move<'v>>, apart: &Apart<'v>, first: usize) -> Vec<Kept> {
    let freqs = match &apart.symbols {
        Symbols::Rans(freqs) => Some(contents.put_freqs(freqs)),
        _ => None,
    };
    let mut blocks: Vec<Vec<Kept>> = Vec::with_capacity(apart.blocks.len());
    for part in &apart.blocks {
        let mut take = |contents: &mut Contents<'_>, view: View<'v>| {
            let at = contents.layout.take(view.len());
            moves.extend((view.len() > 0).then_some((view, at)));
            (Some(at), Kept::There(at..at + view.len()))
        };
        let mut pieces = Vec::new();
        if part.windowed {
            pieces.push(Kept::Here(place::listed(&part.exceptions)));
        }
        let (symbols, stream) = take(contents, part.symbols);
        let source = match &apart.symbols {
            Symbols::Const(s) => Source::Const(*s),
            Symbols::Raw => Source::Raw,
            Symbols::Rans(_) => {
                pieces.push(Kept::Here((part.symbols.len() as u32).to_le_bytes().to_vec()));
                Source::Rans(part.symbols.len())
            }
        };
        let (points, _) = take(contents, part.points);
        let ((fields, bits), (groups, low)) = (take(contents, part.fields), take(contents, part.low));
        pieces.extend([stream, bits, low]);
        let mut block = Block {
            source,
            symbols,
            fields,
            groups,
            points,
            freqs,
            first: first + part.elements.start,
            cut: cut_words(apart.cut),
            n: part.elements.len(),
            ..Block::default()
        };
        contents.put_exceptions(&mut block, &part.exceptions);
        contents.push(block);
        blocks.push(pieces);
    }
    let lengths = blocks.iter().map(|b| b.iter().map(Kept::len).sum::<usize>() as u32);
    let lengths: Vec<u8> = lengths.take(blocks.len().saturating_sub(1)).flat_map(u32::to_le_bytes).collect();
    let head = [Kept::Here(apart.header.clone()), Kept::Here(lengths)];
    head.into_iter().chain(blocks.into_iter().flatten()).collect()
}

/// What is lost cannot be read.
pub(super) fn lost() -> CodecError {
    failed(DeviceError::Failed("the weights were lost when an encoding of them failed".to_owned()))
}
