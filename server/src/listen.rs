//! Connections: accepted, bounded, encrypted where there is a certificate, timed out, and let go when the server stops.
//! Neighbours: `lib` gives the router. It must not know routes.
//!
//! HTTP/1.1 only: what the clients of model hubs speak, and fewer ways to make a server work for nothing than HTTP/2 has.

use crate::{
    app::App,
    options::Tls,
    problem::{Problem, Result},
};
use axum::{Router, body::Body};
use http::StatusCode;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    fmt::Display,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Bytes that a request's line and headers may take, and their number.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 100;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After a failure to accept (too many open files, say).
const BREATHER: Duration = Duration::from_millis(50);

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// An address that is listened at.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptorDebug>,
    address: SocketAddr,
}

#[derive(Clone)]
struct TlsAcceptorDebug(TlsAcceptor);

impl std::fmt::Debug for TlsAcceptorDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

impl Listener {
    /// Binds the address; reads the certificate.
    ///
    /// # Errors
    /// The address is taken or not this machine's; no such certificate or key.
    pub async fn bind(app: &App) -> Result<Listener> {
        let options = app.options();
        let tls = options.tls.as_ref().map(acceptor).transpose()?;
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
        let permits = Arc::new(Semaphore::new(app.options().max_connections.max(1)));
        let graceful = GracefulShutdown::new();
        loop {
            let permit = tokio::select! {
                permit = permits.clone().acquire_owned() => permit,
                () = app.stopped() => break,
            };
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = app.stopped() => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let (app, router, tls, watcher) = (app.clone(), router.clone(), self.tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                let metrics = app.metrics().connections.clone();
                metrics.inc();
                connection(&app, router, stream, tls, peer, watcher).await;
                metrics.dec();
                drop(permit);
            });
        }
        drop(self.tcp);
        tracing::info!("stopping: requests under way may end");
        if timeout(app.options().grace, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests still under way are cut off");
        }
    }
}

async fn connection(
    app: &App,
    router: Router,
    stream: TcpStream,
    tls: Option<TlsAcceptorDebug>,
    peer: SocketAddr,
    watcher: Watcher,
) {
    // Small answers should not wait for more to send.
    let _ = stream.set_nodelay(true);
    match tls {
        None => http(app, router, stream, peer, watcher).await,
        Some(tls) => match timeout(HANDSHAKE, tls.0.accept(stream)).await {
            Ok(Ok(stream)) => http(app, router, stream, peer, watcher).await,
            Ok(Err(error)) => ended(peer, &error),
            Err(_) => ended(peer, &"the handshake took too long"),
        },
    }
}

async fn http<S>(app: &App, router: Router, stream: S, peer: SocketAddr, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    // Only for writing: while a commit is compressed, its client rightly sends nothing. Bodies have a layer of their own.
    stream.set_write_timeout(Some(app.options().stall_timeout));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer.ip()));
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
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

fn acceptor(tls: &Tls) -> Result<TlsAcceptorDebug> {
    let bad = |what: &str, path: &std::path::Path, e: &dyn Display| {
        Problem::usage(format!("cannot use the {what} in {}: {e}", path.display()))
    };
    let unreadable = |e: &dyn Display| bad("certificate", &tls.certificate, e);
    let chain = CertificateDer::pem_file_iter(&tls.certificate).map_err(|e| unreadable(&e))?;
    let chain = chain
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|e| unreadable(&e))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| bad("key", &tls.key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Problem::internal)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| unreadable(&e))?;
    Ok(TlsAcceptorDebug(TlsAcceptor::from(Arc::new(config))))
}
