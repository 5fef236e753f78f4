//! Minimum rate of request bodies: a slower client is cut off, so that it does not hold files and quota for ever.

use crate::{app::App, problem::Problem};
use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use hyper::body::{Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// A body whose client may be waited for `wait_limit` in all, and longer by what it sends at `rate` bytes a second;
/// never longer than `wait_limit` from now.
struct Paced {
    body: Body,
    rate: u64,
    wait_limit: Duration,
    /// How long the client may be waited for still.
    left: Duration,
    /// Since when it is waited for, and until when it may be.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    cut: Arc<AtomicBool>,
}

impl Paced {
    fn took(&mut self, bytes: u64) {
        if let Some((since, _)) = self.waiting.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        let earned = Duration::from_millis(bytes.saturating_mul(1000) / self.rate);
        self.left = self.left.saturating_add(earned).min(self.wait_limit);
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            let bytes = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref());
            this.took(bytes.map_or(0, |b| b.len() as u64));
            return Poll::Ready(frame);
        }
        let left = this.left;
        let (_, end) = this.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now + left)))
        });
        match end.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                this.cut.store(true, Ordering::Relaxed);
                Poll::Ready(Some(Err(axum::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Middleware: cuts off bodies that come too slowly, with an error.
pub(crate) async fn least_rate(State(app): State<App>, request: Request, next: Next) -> Response {
    let (rate, wait_limit) = (app.options().min_upload_rate, app.options().stall_timeout);
    if rate == 0 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let cut = Arc::new(AtomicBool::new(false));
    let paced = |body| Body::new(Paced { body, rate, wait_limit, left: wait_limit, waiting: None, cut: cut.clone() });
    let response = next.run(request.map(paced)).await;
    if response.status().is_success() || !cut.load(Ordering::Relaxed) {
        return response;
    }
    let message = format!("the body came too slowly: less than {rate} bytes a second");
    Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::BodyExt;
    use std::convert::Infallible;

    fn paced(pauses: Vec<(u64, usize)>) -> Paced {
        let pieces = stream::iter(pauses);
        let pieces = futures_util::StreamExt::then(pieces, |(ms, len)| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok::<_, Infallible>(Bytes::from(vec![0; len]))
        });
        Paced {
            body: Body::from_stream(pieces),
            rate: 1000,
            wait_limit: Duration::from_millis(300),
            left: Duration::from_millis(300),
            waiting: None,
            cut: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_trickle_is_cut_and_a_slow_line_is_not() {
        let slow = paced(vec![(5, 10_000); 20]).collect().await.expect("a body");
        assert_eq!(slow.to_bytes().len(), 200_000);
        // A fast start buys no more waiting time than the limit.
        let mut trickle = vec![(0, 100_000_000)];
        trickle.extend(vec![(20, 1); 50]);
        let body = paced(trickle);
        let cut = body.cut.clone();
        assert!(body.collect().await.is_err() && cut.load(Ordering::Relaxed));
    }
}
