//! Turns files into objects: hashing, deduplication, choice of delta base, encoding, writing to the pack.

mod base;
mod bytes;
pub mod cached;
mod device;
mod disk_file;
mod hints;
mod pages;
mod report;
mod source;
pub mod stat_cache;
mod tensors;
mod tree;

pub use base::{BaseRule, Chains, MOST_PLACES, ancestor, chain_len};
pub use cached::ingest_cached;
pub use disk_file::DiskFile;
pub use hints::Hints;
use pages::{WriteOut, expose_writes};
pub use report::{Report, TensorError, TensorReport};
pub use source::Source;
pub use stat_cache::{FileState, recall, remember};
pub use tensors::{Pair, below, changed, measure, scheme_name};
pub use tree::store_trees;

use crate::{
    Progress, RepoError, Result,
    object_db::{Odb, add_object},
    pack::PackWriter,
    progress::go_on,
};
use bytes::{Gaps, cut};
use mdl_files::{FileSource, Format, Layout, ScanError, scan};
use mdl_objects::{Chunk, Entry, Id, Kind, Manifest, Mode, ViewRef};
use std::{collections::HashMap, path::Path};

/// A plain file up to this long is one blob; a longer one is cut into chunks by content.
pub(crate) const SMALL_FILE: u64 = 1 << 20;

/// Names the operation in `Stopped` errors.
pub const STORING: &str = "the commit";

/// Where new objects go.
pub enum Sink<'a> {
    /// Nowhere: only ids are wanted.
    Ids,
    /// Into a pack, unless the repository has them.
    Pack(&'a mut PackWriter),
}

/// How files become objects.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What new tensors may stand on.
    pub chains: Chains,
    /// Whether a file that is a damaged container is taken as plain bytes instead of refused.
    pub allow_damaged: bool,
}

/// What a file became.
#[derive(Clone, Debug)]
pub struct Ingested {
    /// Whether `id` is a manifest's or a blob's.
    pub mode: Mode,
    /// The object.
    pub id: Id,
    /// Length of the file in bytes.
    pub size: u64,
}

/// Cuts files into objects, one after the other.
pub struct Ingest<'a> {
    /// Objects that are there: what is stored already, and delta bases.
    pub odb: &'a Odb,
    /// Where new objects go.
    pub sink: Sink<'a>,
    /// How files become objects.
    pub policy: Policy,
    /// What the caller knows of the tensors.
    pub hints: &'a Hints,
    /// Told of the bytes that are done.
    pub progress: &'a dyn Progress,
    /// What storing took so far.
    pub report: Report,
}

/// Tensors of the parent's version of a file, by name: the delta bases.
pub type BaseTensors = HashMap<String, Id>;

/// The tensors of a file of a version.
pub fn bases_of(odb: &Odb, file: Option<&Entry>) -> Result<BaseTensors> {
    match file {
        Some(e) if e.mode == Mode::Manifest => {
            let manifest = odb.manifest(&e.id)?;
            Ok(manifest.tensors.into_iter().map(|t| (t.name, t.id)).collect())
        }
        _ => Ok(BaseTensors::new()),
    }
}

impl Ingest<'_> {
    /// Ingests the file at `path`, whose name in the tree is `rel`; `parent` is its entry in the parent version.
    pub fn file(&mut self, path: &Path, rel: &str, parent: Option<&Entry>) -> Result<Ingested> {
        let failed = |e| RepoError::io(format!("cannot read {}", path.display()))(e);
        let source = FileSource::open(path).map_err(failed)?;
        self.source(&source, path, rel, parent)
    }

    /// The same for the bytes of a file, wherever they are; errors speak of `path`.
    pub fn source(&mut self, source: &dyn Source, path: &Path, rel: &str, parent: Option<&Entry>) -> Result<Ingested> {
        let layout = match scan(source, Path::new(rel)) {
            Ok(layout) => layout,
            Err(ScanError::Damaged { .. }) if self.policy.allow_damaged => Layout::plain(),
            Err(source) => return Err(RepoError::Scan { path: path.to_owned(), source }),
        };
        let bases = match &self.sink {
            Sink::Pack(_) => bases_of(self.odb, parent)?,
            Sink::Ids => BaseTensors::new(),
        };
        self.layout(source, layout, rel, &bases)
    }

    /// Encoded bytes that were added so far.
    pub fn payload_bytes(&self) -> u64 {
        match &self.sink {
            Sink::Pack(pack) => pack.payload_bytes(),
            Sink::Ids => 0,
        }
    }

    fn layout(&mut self, source: &dyn Source, layout: Layout, rel: &str, bases: &BaseTensors) -> Result<Ingested> {
        let size = source.size();
        if layout.extents.is_empty() && size <= SMALL_FILE {
            let mut content = vec![0; size as usize];
            source.read_at(0, &mut content).map_err(RepoError::io(format!("cannot read {rel}")))?;
            self.progress.advance(size);
            let id = self.object(Kind::Blob, &content)?;
            return Ok(Ingested { mode: Mode::Blob, id, size });
        }
        let skeleton = self.skeleton(source, &layout, rel)?;
        let tensors = self.tensors(source, &layout, rel, bases)?;
        // A file without tensors says nothing by its format; one code for "bytes" keeps ids equal.
        let format = if layout.extents.is_empty() { Format::Plain } else { layout.format } as u8;
        let views = layout.views.into_iter().map(view).collect();
        let manifest = Manifest { format, size, skeleton, tensors, views };
        let id = self.object(Kind::Manifest, &manifest.encode())?;
        Ok(Ingested { mode: Mode::Manifest, id, size })
    }

    /// Hashes an object that is no tensor, and stores it if it is wanted and new.
    pub fn object(&mut self, kind: Kind, content: &[u8]) -> Result<Id> {
        match &mut self.sink {
            Sink::Ids => Ok(Id::from_content(kind, content)),
            Sink::Pack(pack) => add_object(self.odb, pack, kind, content),
        }
    }

    fn skeleton(&mut self, source: &dyn Source, layout: &Layout, rel: &str) -> Result<Vec<Chunk>> {
        let failed = |e| RepoError::io(format!("cannot read {rel}"))(e);
        let mut chunks = Vec::new();
        cut(Gaps::new(source, layout), |group| {
            let group = group.map_err(failed)?;
            go_on(self.progress, STORING)?;
            for content in &group {
                self.progress.advance(content.len() as u64);
            }
            chunks.extend(bytes::store(self.odb, &mut self.sink, &group)?);
            Ok(())
        })?;
        Ok(chunks)
    }
}

fn view(v: mdl_files::View) -> ViewRef {
    ViewRef { name: v.name, tensor: v.extent, offset: v.offset, dtype: v.dtype, shape: v.shape, strides: v.strides }
}
