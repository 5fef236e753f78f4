//! The one place where the compression engine is chosen. Neighbours: `context` hands it to the repository. It must not
//! know what is compressed.

use mdl_codec::{CpuEngine, Engine};
use std::sync::Arc;

/// The engine every command uses.
pub fn engine() -> Arc<dyn Engine> {
    Arc::new(CpuEngine::new())
}
