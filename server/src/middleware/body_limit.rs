//! Limits size, time and rate of request bodies.
//!
//! A handler that takes [`crate::auth::Write`] or [`crate::auth::Admin`] knows the rights before it reads a byte; from
//! then on a body may be as long, and take as long, as the route allows. Others (login, creating a repository) read
//! first. Without this, a client that sends a byte now and then would hold a connection for as long as it likes. A
//! minimum rate holds for all: a slower client would hold files and quota for ever.

use crate::{
    app::App,
    auth::{Caller, Scope},
    options::Options,
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
use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest body of an unauthenticated client.
const UNKNOWN_BYTES: u64 = 64 << 10;

tokio::task_local! {
    /// The body of this task's request.
    static BODY: Arc<BodyState>;
}

/// What is known of a caller: the more, the longer a body may be and take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    #[default]
    Unknown,
    /// A token, or that anonymous callers may read the repository.
    Reader,
    /// That the request may change something.
    Writer,
}

/// Why a body was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Late,
    Long,
    Slow,
}

#[derive(Debug, Default)]
struct BodyState {
    trust: Mutex<Trust>,
    cut: Mutex<Option<Cut>>,
}

impl BodyState {
    fn learn(&self, trust: Trust) {
        let mut known = self.trust.lock();
        *known = trust.max(*known);
    }

    /// The answer to a body that was cut off before the caller's rights were known.
    fn problem(&self) -> Option<Problem> {
        let problem = match (*self.cut.lock())? {
            Cut::Late => Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not come in time"),
            Cut::Long => Problem::too_large(format!("more than {UNKNOWN_BYTES} bytes of a client without a token")),
            Cut::Slow => return None,
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
    let _ = BODY.try_with(|state| state.learn(trust));
}

/// Middleware: bounds the body; one that came too slowly is an error.
pub(crate) async fn bound(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let state = Arc::<BodyState>::default();
    let limits = Limits::from_options(app.options());
    let request = request.map(|body| Body::new(BoundedBody::new(body, state.clone(), limits)));
    let response = BODY.scope(state.clone(), next.run(request)).await;
    if response.status().is_success() || *state.cut.lock() != Some(Cut::Slow) {
        return response;
    }
    let message = format!("the body came too slowly: less than {} bytes a second", limits.rate);
    Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).into_response()
}

/// Middleware inside `bound` and `identify`: answers where the body was cut off before the caller's rights were known.
pub(crate) async fn limit(request: Request, next: Next) -> Response {
    if let Some(caller) = request.extensions().get::<Caller>() {
        if caller.may_everywhere(Scope::Write) {
            allow(Scope::Write);
        } else if !caller.is_anonymous() {
            allow(Scope::Read);
        }
    }
    let response = next.run(request).await;
    let problem = BODY.try_with(|state| state.problem()).ok().flatten();
    problem.map_or(response, Problem::into_response)
}

#[derive(Clone, Copy)]
struct Limits {
    /// How long the body of an unknown client may take, and that of a reader.
    unknown: Duration,
    reader: Duration,
    /// Bytes a second; 0: any. A client may be waited for `stall` in all, and longer by what it sends at this rate;
    /// never longer than `stall` from now.
    rate: u64,
    stall: Duration,
}

impl Limits {
    fn from_options(options: &Options) -> Limits {
        let stall = options.stall_timeout;
        Limits { unknown: options.header_timeout, reader: stall, rate: options.min_upload_rate, stall }
    }
}

struct BoundedBody {
    body: Body,
    state: Arc<BodyState>,
    limits: Limits,
    start: Instant,
    /// Bytes that an unknown client may send still.
    left: u64,
    /// How long the client may be waited for still, and since when it is.
    wait: Duration,
    waiting: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    fn new(body: Body, state: Arc<BodyState>, limits: Limits) -> BoundedBody {
        let (start, wait) = (Instant::now(), limits.stall);
        BoundedBody { body, state, limits, start, left: UNKNOWN_BYTES, wait, waiting: None, timer: None }
    }

    fn took(&mut self, bytes: u64) {
        if let Some(since) = self.waiting.take() {
            self.wait = self.wait.saturating_sub(since.elapsed());
        }
        let earned = Duration::from_millis(bytes.saturating_mul(1000) / self.limits.rate.max(1));
        self.wait = self.wait.saturating_add(earned).min(self.limits.stall);
    }

    fn is_over(&mut self, at: Instant, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    fn cut(&self, why: Cut) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        *self.state.cut.lock() = Some(why);
        let error = io::Error::new(io::ErrorKind::TimedOut, "the body is too long or too slow");
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let trust = *this.state.trust.lock();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let bytes = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => 0,
        };
        let mut slow = None;
        if polled.is_ready() {
            this.took(bytes);
        } else if this.limits.rate > 0 {
            slow = Some(*this.waiting.get_or_insert_with(Instant::now) + this.wait);
        }
        let late = match trust {
            Trust::Writer => None,
            _ if matches!(polled, Poll::Ready(None)) => None,
            Trust::Reader => Some(this.start + this.limits.reader),
            Trust::Unknown => Some(this.start + this.limits.unknown),
        };
        if let Some(at) = slow.into_iter().chain(late).min()
            && this.is_over(at, cx)
        {
            return this.cut(if late == Some(at) { Cut::Late } else { Cut::Slow });
        }
        if trust == Trust::Unknown {
            let Some(left) = this.left.checked_sub(bytes) else {
                return this.cut(Cut::Long);
            };
            this.left = left;
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

    fn known(trust: Trust) -> Arc<BodyState> {
        Arc::new(BodyState { trust: Mutex::new(trust), ..BodyState::default() })
    }

    /// Wraps a body with these deadlines.
    fn bounded(body: Body, known: &Arc<BodyState>, unknown: Duration, reader: Duration) -> BoundedBody {
        BoundedBody::new(body, known.clone(), Limits { unknown, reader, rate: 0, stall: AN_HOUR })
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
        let learns = BODY.scope(known.clone(), async {
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

    fn paced(pauses: Vec<(u64, usize)>) -> BoundedBody {
        let pieces = stream::iter(pauses);
        let pieces = pieces.then(|(ms, len)| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok::<_, io::Error>(Bytes::from(vec![0; len]))
        });
        let limits = Limits { unknown: AN_HOUR, reader: AN_HOUR, rate: 1000, stall: Duration::from_millis(300) };
        BoundedBody::new(Body::from_stream(pieces), known(Trust::Writer), limits)
    }

    #[tokio::test]
    async fn a_trickle_is_cut_and_a_slow_line_is_not() {
        let slow = paced(vec![(5, 10_000); 20]).collect().await.expect("a body");
        assert_eq!(slow.to_bytes().len(), 200_000);
        // A fast start buys no more waiting time than that.
        let mut trickle = vec![(0, 100_000_000)];
        trickle.extend(vec![(20, 1); 50]);
        let body = paced(trickle);
        let state = body.state.clone();
        assert!(body.collect().await.is_err() && *state.cut.lock() == Some(Cut::Slow));
    }
}
