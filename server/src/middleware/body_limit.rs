//! Limits size and time of request bodies until the caller's rights are known.
//!
//! A handler that takes [`crate::auth::Write`] or [`crate::auth::Admin`] knows the rights before it reads a byte; from
//! then on a body may be as long, and take as long, as the route allows. Others (login, creating a repository) read
//! first. Without this, a client that sends a byte now and then would hold a connection for as long as it likes.

use crate::{
    app::App,
    auth::{Caller, Scope},
    problem::Problem,
};
use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use hyper::body::{Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest body of an unauthenticated client.
const UNKNOWN_BYTES: u64 = 64 << 10;

tokio::task_local! {
    /// What is known of the caller of this task's request.
    static KNOWN: Arc<Known>;
}

/// What is known of a caller: the more, the longer a body may be and take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Trust {
    /// Nothing.
    Unknown,
    /// A token, or that anonymous callers may read the repository.
    Reader,
    /// That the request may change something.
    Writer,
}

#[derive(Debug)]
struct Known {
    trust: AtomicU8,
    refused: AtomicU8,
}

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Refused {
    Late = 1,
    Long = 2,
}

impl Known {
    fn learn(&self, trust: Trust) {
        self.trust.fetch_max(trust as u8, Ordering::Relaxed);
    }

    fn is_at_least(&self, trust: Trust) -> bool {
        self.trust.load(Ordering::Relaxed) >= trust as u8
    }

    fn refuse(&self, why: Refused) {
        self.refused.store(why as u8, Ordering::Relaxed);
    }

    fn problem(&self) -> Option<Problem> {
        let refused = self.refused.load(Ordering::Relaxed);
        let problem = match refused {
            r if r == Refused::Late as u8 => {
                let message = "the body did not come in time";
                Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
            }
            r if r == Refused::Long as u8 => {
                Problem::too_large(format!("more than {UNKNOWN_BYTES} bytes of a client without a token"))
            }
            _ => return None,
        };
        Some(problem.header(header::CONNECTION, HeaderValue::from_static("close")))
    }
}

/// Records that the request of this task has this scope: its body may take as long as that needs.
pub(crate) fn allow(scope: Scope) {
    let trust = match scope {
        Scope::Read => Trust::Reader,
        Scope::Write | Scope::Admin => Trust::Writer,
    };
    // Outside of a request there is no body to wait for.
    let _ = KNOWN.try_with(|known| known.learn(trust));
}

/// Middleware inside `identify`: limits the body until the caller's rights are known.
pub(crate) async fn limit(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let known = Arc::new(Known { trust: AtomicU8::new(Trust::Unknown as u8), refused: AtomicU8::new(0) });
    if let Some(caller) = request.extensions().get::<Caller>() {
        if caller.may_everywhere(Scope::Write) {
            known.learn(Trust::Writer);
        } else if !caller.is_anonymous() {
            known.learn(Trust::Reader);
        }
    }
    let options = app.options();
    let request = request.map(|body| {
        Body::new(Bounded {
            body,
            known: known.clone(),
            start: Instant::now(),
            unknown: options.header_timeout,
            reader: options.stall_timeout,
            deadline: None,
            left: UNKNOWN_BYTES,
        })
    });
    let response = KNOWN.scope(known.clone(), next.run(request)).await;
    match known.problem() {
        Some(problem) => problem.into_response(),
        None => response,
    }
}

/// A body with a deadline.
struct Bounded {
    body: Body,
    known: Arc<Known>,
    start: Instant,
    /// How long the body of an unknown client may take, and that of a reader.
    unknown: Duration,
    reader: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    left: u64,
}

impl Bounded {
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let allowed = match self.known.is_at_least(Trust::Reader) {
            true => self.reader,
            false => self.unknown,
        };
        let at = self.start + allowed;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if deadline.deadline() != at {
            deadline.as_mut().reset(at);
        }
        deadline.as_mut().poll(cx).is_ready()
    }

    fn refuse(&self, why: Refused) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.known.refuse(why);
        let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "the body is too long or too slow");
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let body = &mut *self;
        let is_writer = body.known.is_at_least(Trust::Writer);
        let polled = Pin::new(&mut body.body).poll_frame(cx);
        if is_writer {
            return polled;
        }
        if !matches!(polled, Poll::Ready(None)) && body.is_late(cx) {
            return body.refuse(Refused::Late);
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && !body.known.is_at_least(Trust::Reader)
        {
            let Some(left) = body.left.checked_sub(data.len() as u64) else {
                return body.refuse(Refused::Long);
            };
            body.left = left;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use http_body_util::BodyExt;

    fn known(trust: Trust) -> Arc<Known> {
        Arc::new(Known { trust: AtomicU8::new(trust as u8), refused: AtomicU8::new(0) })
    }

    /// Wraps a body with these deadlines.
    fn bounded(body: Body, known: &Arc<Known>, unknown: Duration, reader: Duration) -> Bounded {
        Bounded {
            body,
            known: known.clone(),
            start: Instant::now(),
            unknown,
            reader,
            deadline: None,
            left: UNKNOWN_BYTES,
        }
    }

    const NO_TIME: Duration = Duration::ZERO;
    const AN_HOUR: Duration = Duration::from_secs(3600);

    /// A byte, then nothing for a moment, then the rest.
    fn slow() -> Body {
        let bytes = stream::iter(["a", "b"]).then(|text| async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, std::io::Error>(Bytes::from_static(text.as_bytes()))
        });
        Body::from_stream(bytes)
    }

    #[tokio::test]
    async fn the_less_is_known_the_sooner_a_body_has_to_be_whole() {
        for (trust, unknown, reader, is_whole) in [
            (Trust::Unknown, AN_HOUR, NO_TIME, true),
            (Trust::Unknown, NO_TIME, AN_HOUR, false),
            (Trust::Reader, NO_TIME, AN_HOUR, true),
            (Trust::Reader, AN_HOUR, NO_TIME, false),
            (Trust::Writer, NO_TIME, NO_TIME, true),
        ] {
            let known = known(trust);
            let read = bounded(slow(), &known, unknown, reader).collect().await;
            assert_eq!(read.is_ok(), is_whole, "{trust:?}");
            let problem = known.problem().map(|p| p.status);
            assert_eq!(problem, (!is_whole).then_some(StatusCode::REQUEST_TIMEOUT), "{trust:?}");
        }
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_not_waited_for() {
        let known = known(Trust::Unknown);
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert!(bounded(body, &known, NO_TIME, AN_HOUR).collect().await.is_err());
        assert_eq!(known.problem().expect("refused").status, StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn what_is_learnt_in_the_middle_counts() {
        let known = known(Trust::Unknown);
        let learns = KNOWN.scope(known.clone(), async {
            let body = bounded(slow(), &known, NO_TIME, NO_TIME);
            allow(Scope::Write);
            body.collect().await
        });
        assert_eq!(learns.await.expect("as long as it takes").to_bytes(), "ab");
        assert!(known.problem().is_none());
    }

    #[tokio::test]
    async fn an_unknown_client_sends_little() {
        let chunk = |_| Ok::<_, std::io::Error>(Bytes::from(vec![0; 1024]));
        let chunks = |n: usize| Body::from_stream(stream::iter((0..n).map(chunk)));
        let unknown = known(Trust::Unknown);
        assert!(bounded(chunks(64), &unknown, AN_HOUR, AN_HOUR).collect().await.is_ok());
        assert!(bounded(chunks(65), &unknown, AN_HOUR, AN_HOUR).collect().await.is_err());
        assert_eq!(unknown.problem().expect("refused").status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(bounded(chunks(4096), &known(Trust::Reader), AN_HOUR, AN_HOUR).collect().await.is_ok());
    }
}
