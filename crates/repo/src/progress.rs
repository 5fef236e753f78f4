//! How long work reports how far it is. Neighbours: commit, checkout, fsck, gc and compact call it; the faces show it. It
//! must not know how it is shown.

/// Receives progress, from any thread.
pub trait Progress: Sync {
    /// Work begins: `total` units (bytes, unless `what` says otherwise) are ahead; 0 if unknown.
    fn begin(&self, what: &str, total: u64);
    /// `n` more units are done.
    fn advance(&self, n: u64);
    /// The work has ended.
    fn end(&self);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
}
