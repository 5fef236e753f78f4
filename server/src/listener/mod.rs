//! Listener: accepts, limits and times out connections, with TLS if there is a certificate, and shuts them down.
//!
//! HTTP/1.1 only: what the clients of model hubs speak, and fewer ways to make a server work for nothing than HTTP/2
//! has.

mod connections;
mod socket;
mod tls;

use crate::{
    app::App,
    options::Options,
    problem::{Problem, Result},
};
use axum::{Router, body::Body};
use connections::{Connections, Limits, Seat};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use socket::Socket;
use std::{
    fmt::Display,
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};
use tls::Acceptor;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

/// Bytes that a request's line and headers may take, and their number.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 100;
/// After a failure to accept (too many open files, say).
const BREATHER: Duration = Duration::from_millis(50);
/// Minimum time between repeated log lines.
const TELL: Duration = Duration::from_secs(10);
/// One client has at most this fraction of all connections, unless the operator set a number.
const SHARE: usize = 4;
const LEAST_SHARE: usize = 8;

/// To a client that has too many connections, if it gets to read it.
const REFUSED: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// An address that is listened at.
pub struct Listener {
    tcp: TcpListener,
    tls: Option<Acceptor>,
    address: SocketAddr,
}

impl Listener {
    /// Binds the address; reads the certificate.
    pub async fn bind(app: &App) -> Result<Listener> {
        let options = app.options();
        let tls = options.tls.as_ref().map(Acceptor::new).transpose()?;
        let failed = |e: io::Error| {
            let message = format!("cannot listen at {}: {e}", options.listen);
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "io", message)
                .hint("--listen names another address and port; port 0 takes a free one")
        };
        let tcp = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        Ok(Listener { tcp, tls, address })
    }

    /// Where it listens: `http://127.0.0.1:7878`.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves until the app is stopped, then lets requests under way end for as long as the operator allows.
    pub async fn run(self, app: &App, router: Router) {
        let connections = Connections::new(limits(app.options()));
        let graceful = GracefulShutdown::new();
        let mut last_told = None;
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = app.stopped() => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    connections.close_idle();
                    if is_time_to_tell(&mut last_told) {
                        tracing::warn!(%error, "cannot accept connections");
                    }
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let admitted = tokio::select! {
                admitted = connections.admit(peer.ip()) => admitted,
                () = app.stopped() => break,
            };
            let Ok(seat) = admitted else {
                if is_time_to_tell(&mut last_told) {
                    tracing::warn!(client = %peer.ip(), "a client has as many connections as it may have");
                }
                if self.tls.is_none() {
                    let _ = stream.try_write(REFUSED);
                }
                continue;
            };
            let (app, router, tls, watcher) = (app.clone(), router.clone(), self.tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                let metrics = app.metrics().connections.clone();
                metrics.inc();
                tokio::select! {
                    biased;
                    () = connection(&app, router, stream, tls, peer, &seat, watcher) => {}
                    () = seat.state.give_way() => ended(peer, &"it was idle, and others wait"),
                }
                metrics.dec();
                drop(seat);
            });
        }
        drop(self.tcp);
        tracing::info!("stopping: requests under way may end");
        if timeout(app.options().grace, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests still under way are cut off");
        }
    }
}

fn limits(options: &Options) -> Limits {
    let total = options.max_connections.max(1);
    let named = options.max_connections_per_address;
    Limits {
        total,
        per_client: named.unwrap_or_else(|| (total / SHARE).max(LEAST_SHARE)).max(1),
        loopback_exempt: named.is_none(),
        proxies: options.trusted_proxies.clone(),
    }
}

fn is_time_to_tell(last: &mut Option<Instant>) -> bool {
    let is_time = last.is_none_or(|told| told.elapsed() >= TELL);
    if is_time {
        *last = Some(Instant::now());
    }
    is_time
}

async fn connection(
    app: &App,
    router: Router,
    stream: TcpStream,
    tls: Option<Acceptor>,
    peer: SocketAddr,
    seat: &Seat,
    watcher: Watcher,
) {
    let stream = Socket::new(stream, seat.state.clone());
    match tls {
        None => http(app, router, stream, peer, seat, watcher).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => http(app, router, stream, peer, seat, watcher).await,
            Err(error) => ended(peer, &error),
        },
    }
}

async fn http<S>(app: &App, router: Router, stream: S, peer: SocketAddr, seat: &Seat, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    // Only for writing: while a commit is compressed, its client rightly sends nothing. Bodies have a layer of their
    // own.
    stream.set_write_timeout(Some(app.options().stall_timeout));
    let state = &seat.state;
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let busy = state.busy();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer.ip()));
        let answered = router.clone().oneshot(request);
        // The connection is busy until the answer's body is dropped: all of it was handed on.
        let held = |body: Body| {
            body.map_err(move |error| {
                let _busy = &busy;
                error
            })
        };
        async move { Ok::<_, std::convert::Infallible>(answered.await?.map(held)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // From the last answer to the end of the next head: idle connections end with it, too.
        .header_read_timeout(app.options().header_timeout)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    if let Err(error) = watcher.watch(connection).await {
        ended(peer, &error);
    }
}

fn ended(peer: SocketAddr, why: &dyn Display) {
    tracing::debug!(%peer, %why, "a connection ended");
}
