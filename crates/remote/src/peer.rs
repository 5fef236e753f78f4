//! The `Peer` trait: the other side of a transfer, whatever the transport.

use crate::sync::{Bundle, Piece, RefMove, TransferPlan, Want};
use mdl_objects::Id;
use mdl_repo::{Progress, PrunedMark, RepoError, Result};
use std::collections::HashSet;

/// What the other side is, and where its refs stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Branch that HEAD is on, by its short name; none if it is on none.
    pub head: Option<String>,
    /// Full names of branches and tags, and of the notes, sorted, with what they hold.
    pub refs: Vec<(String, Id)>,
}

impl Advertised {
    /// The object that a ref points at.
    pub fn get(&self, name: &str) -> Option<Id> {
        let at = self.refs.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok()?;
        Some(self.refs[at].1)
    }
}

/// Reads a part of a bundle on this side: at most a few MiB.
pub type ReadPart<'a> = dyn Fn(&[Piece]) -> Result<Vec<u8>> + Sync + 'a;

/// Receives bytes, some at a time.
pub type Take<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// The other side of a transfer. Every call fails where it cannot be reached, or refuses.
pub trait Peer: Send + Sync {
    /// Its branches and tags.
    fn refs(&self) -> Result<Advertised>;

    /// Plans which of the wanted objects it can send. A tip that it lacks is an error.
    fn plan(&self, want: &Want, progress: &dyn Progress) -> Result<TransferPlan>;

    /// Tensors encoded without a base, for a receiver that lacks their bases; none where it cannot do that.
    fn plan_standalone(&self, tensors: &[Id], progress: &dyn Progress) -> Result<Option<TransferPlan>>;

    /// Bytes of its packs, end to end, in this order; each is handed on once, as it comes. An error where a pack is
    /// gone or fewer bytes came than were asked for.
    fn read(&self, pieces: &[Piece], take: &mut Take<'_>) -> Result<()>;

    /// Which of these objects it is missing.
    fn missing(&self, ids: &[Id]) -> Result<HashSet<Id>>;

    /// Which of these commits its refs reach.
    fn known(&self, commits: &[Id]) -> Result<HashSet<Id>>;

    /// The most bytes a bundle to it may hold, as long as no object is larger.
    fn bundle_bytes(&self) -> u64;

    /// Sends bundles, except parts that have arrived there already, and has them checked and stored. `read` reads their
    /// parts here. Returns how many bytes were sent. After an error, what has arrived whole need not be sent again.
    fn send(&self, bundles: &[Bundle], read: &ReadPart<'_>, progress: &dyn Progress) -> Result<u64>;

    /// Tells it which of the versions that it was sent were pruned here: it notes that of those whose contents it
    /// lacks.
    fn note_pruned(&self, pruned: &[(Id, PrunedMark)]) -> Result<()>;

    /// Moves its refs, one after the other, each by compare-and-swap, once all that they will point at is seen to be
    /// there. Returns each outcome. Where something is missing there, none was moved.
    fn move_refs(&self, moves: &[RefMove], message: &str) -> Result<Vec<Result<()>>>;
}

/// The error for an answer that makes no sense.
pub(crate) fn nonsense(what: &str) -> RepoError {
    RepoError::corrupt("an answer of the other side", what)
}
