//! HTTPS: the certificate, its key, and the handshake.

use crate::{
    options::Tls,
    problem::{Problem, Result},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{fmt::Display, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// How long a handshake may take as a whole.
const HANDSHAKE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Acceptor(TlsAcceptor);

impl Acceptor {
    pub(super) fn new(tls: &Tls) -> Result<Acceptor> {
        let bad = |what: &str, path: &Path, e: &dyn Display| {
            Problem::usage(format!("cannot use the {what} in {}: {e}", path.display()))
        };
        let unreadable = |e: &dyn Display| bad("certificate", &tls.certificate, e);
        let chain = CertificateDer::pem_file_iter(&tls.certificate).map_err(|e| unreadable(&e))?;
        let chain = chain.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| unreadable(&e))?;
        let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| bad("key", &tls.key, &e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Problem::internal)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| unreadable(&e))?;
        Ok(Acceptor(TlsAcceptor::from(Arc::new(config))))
    }

    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match timeout(HANDSHAKE, self.0.accept(stream)).await {
            Ok(accepted) => accepted,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long")),
        }
    }
}
