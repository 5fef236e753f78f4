//! Response bodies of a known length that are produced while they are sent.
//!
//! The last piece is held back until the producer reports success: a body that is complete is right.

use crate::{
    app::App,
    content::body_from_producer,
    problem::{Problem, Result},
    tasks::fair::Party,
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::{io, pin::Pin};

pub(super) use crate::content::Sink;

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A body of `len` bytes, which `make` hands to its sink while it holds `units` of memory for a client.
///
/// # Errors
/// 503: too many wait for memory. What `make` runs into before its first bytes; a later failure cuts the body off, and
/// the client sees that bytes are missing.
pub(super) async fn body<F>(app: &App, party: &Party, len: u64, units: u32, make: F) -> Result<Body>
where
    F: FnOnce(Sink<'_>) -> Result<()> + Send + 'static,
{
    let permit = app.content().decoders().permit(party, units).await?;
    let pieces = body_from_producer(app.content().disk_buffer(), party, move |sink| {
        let _permit = permit;
        make(sink)
    });
    let mut pieces: Pieces = Box::pin(pieces);
    let first = match pieces.next().await {
        Some(first) => first?,
        None if len == 0 => return Ok(Body::empty()),
        None => return Err(Problem::internal("nothing was made")),
    };
    let state = Sending { pieces, held: Some(first), left: len };
    let sent = app.metrics().sent.clone();
    let whole = stream::try_unfold(state, |state| async {
        state.next().await.map_err(|p: Problem| io::Error::other(p.message))
    });
    Ok(Body::from_stream(whole.inspect(move |piece| {
        if let Ok(bytes) = piece {
            sent.inc_by(bytes.len() as u64);
        }
    })))
}

struct Sending {
    pieces: Pieces,
    held: Option<Bytes>,
    left: u64,
}

impl Sending {
    async fn next(mut self) -> Result<Option<(Bytes, Sending)>> {
        let Some(now) = self.held.take() else { return Ok(None) };
        let wrong = || Problem::internal("a body has not the length that was promised");
        self.left = self.left.checked_sub(now.len() as u64).ok_or_else(wrong)?;
        self.held = self.pieces.next().await.transpose()?;
        if self.held.is_none() && self.left > 0 {
            return Err(wrong());
        }
        Ok(Some((now, self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use http_body_util::BodyExt;
    use mdl_repo::RepoError;
    use std::sync::Arc;

    async fn of(len: u64, make: impl FnOnce(Sink<'_>) -> Result<()> + Send + 'static) -> Option<Vec<u8>> {
        let dir = tempfile::tempdir().expect("a directory");
        let app = App::new(Options::new(dir.path()), Arc::new(mdl_codec::CpuEngine::default())).expect("an app");
        let body = body(&app, &Party::new("ada", "a/x"), len, 1, make).await.ok()?;
        Some(body.collect().await.ok()?.to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_complete_body_is_right() {
        let long = vec![7u8; (3 << 20) + 5];
        let made = long.clone();
        assert_eq!(of(long.len() as u64, move |send| Ok(send(&made)?)).await, Some(long));
        assert_eq!(of(0, |_| Ok(())).await, Some(Vec::new()));
        assert_eq!(of(3, |send| Ok(send(b"ab")?)).await, None, "too short");
        assert_eq!(of(1, |send| Ok(send(b"ab")?)).await, None, "too long");
        assert_eq!(of(1, |_| Ok(())).await, None, "nothing");
        let late = |send: Sink<'_>| {
            send(b"ab")?;
            Err(RepoError::corrupt("tensor", "wrong at its end").into())
        };
        assert_eq!(of(2, late).await, None, "all bytes came, and they were wrong");
    }
}
