//! One HTTP request, tried again where that may help.
//!
//! Every call of the protocol may be made again when its answer was lost; so all of them are.

use super::{
    address::Address,
    answer::{Refused, refused},
    client::{client, innermost},
    retry::{Failure, Retries},
};
use crate::{peer::Take, runtime, sync::WHAT};
use bytes::Bytes;
use mdl_repo::{Progress, RepoError, Result};
use mdl_store::progress::go_on;
use reqwest::{
    Client, Method, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::RecvTimeoutError,
    },
    thread,
    time::Duration,
};
use tokio::sync::mpsc;

/// Chunks of an answer that may wait to be taken.
const CHUNKS: usize = 4;
/// Bytes of a refusal that are read.
const MAX_REFUSAL: u64 = 64 << 10;

/// The line to a repository; a handle.
#[derive(Clone)]
pub(super) struct Wire(Arc<Inner>);

struct Inner {
    address: Address,
    token: Option<HeaderValue>,
    quick: Client,
    patient: Client,
    /// Whether there was ever an answer.
    reached: AtomicBool,
}

/// A request.
#[derive(Clone)]
pub(super) struct Call {
    pub method: Method,
    /// Below the repository's `sync/`, with what is behind `?`.
    pub path: String,
    /// Media type and bytes.
    pub body: Option<(&'static str, Bytes)>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the other side may think for long.
    pub patient: bool,
    /// Bytes that may come.
    pub max: u64,
}

impl Call {
    pub fn new(method: Method, path: impl Into<String>, max: u64) -> Call {
        Call { method, path: path.into(), body: None, headers: Vec::new(), patient: false, max }
    }
}

/// What came of a request.
pub(super) type Asked<T> = std::result::Result<T, Refused>;
/// What came of a try.
type Tried<T> = std::result::Result<T, Failure>;

impl Wire {
    pub fn new(address: Address, token: Option<&str>) -> Result<Wire> {
        Ok(Wire(Arc::new(Inner {
            token: token.map(|t| address.authorize(t)).transpose()?,
            quick: client(&address, false)?,
            patient: client(&address, true)?,
            reached: AtomicBool::new(false),
            address,
        })))
    }

    /// The repository's URL, for messages.
    pub fn shown(&self) -> &str {
        &self.0.address.shown
    }

    /// Asks; the calling thread waits.
    pub fn call(&self, call: Call) -> Asked<Vec<u8>> {
        let inner = self.0.clone();
        runtime::block_on(async move { inner.tries(call).await })?
    }

    /// Asks once, and waits as long as is meet before the caller tries again. True: it was done. An error: there is no
    /// use in trying again.
    pub fn try_once(&self, call: Call, retries: &mut Retries) -> Asked<bool> {
        let inner = self.0.clone();
        match runtime::block_on(async move { inner.once(&call).await })? {
            Ok(_) => Ok(true),
            Err(failure) => {
                thread::sleep(self.0.pause_after(retries, failure)?);
                Ok(false)
            }
        }
    }

    /// Bytes as they come, `call.max` of them; the calling thread takes them. Where the line breaks, `rest` says what
    /// to ask for after so many bytes.
    pub fn stream(&self, rest: &dyn Fn(u64) -> Call, take: &mut Take<'_>) -> Asked<()> {
        let (mut came, mut retries) = (0, Retries::new(false));
        loop {
            let before = came;
            let call = rest(came);
            let Err(failure) = self.stream_once(call, &mut came, take)? else {
                return Ok(());
            };
            if came > before {
                retries = Retries::new(false);
            }
            thread::sleep(self.0.pause_after(&mut retries, failure)?);
        }
    }

    fn stream_once(&self, call: Call, came: &mut u64, take: &mut Take<'_>) -> Result<Tried<()>> {
        let (give, mut chunks) = mpsc::channel(CHUNKS);
        let (inner, mut left) = (self.0.clone(), call.max);
        runtime::spawn(async move {
            if let Err(failure) = inner.hand_on(&call, &give).await {
                // A receiver that was dropped need not know.
                let _ = give.send(Err(failure)).await;
            }
        })?;
        while let Some(chunk) = chunks.blocking_recv() {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(failure) => return Ok(Err(failure)),
            };
            let len = chunk.len() as u64;
            if len > left {
                return Ok(Err(self.0.wrong("more than was asked for")));
            }
            take(&chunk)?;
            (left, *came) = (left - len, *came + len);
        }
        Ok(match left {
            0 => Ok(()),
            _ => Err(self.0.wrong("less than was asked for")),
        })
    }

    /// As `call`, until `progress` says to stop.
    pub fn call_while(&self, call: Call, progress: &dyn Progress) -> Asked<Vec<u8>> {
        let (inner, (tell, told)) = (self.0.clone(), std::sync::mpsc::sync_channel(1));
        let asking = runtime::spawn(async move {
            // The receiver is gone only if its thread is.
            let _ = tell.send(inner.tries(call).await);
        })?;
        loop {
            match told.recv_timeout(Duration::from_millis(100)) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) => go_on(progress, WHAT).inspect_err(|_| asking.abort())?,
                Err(e) => return Err(RepoError::io("a request broke off")(io::Error::other(e)).into()),
            }
        }
    }
}

impl Inner {
    async fn tries(&self, call: Call) -> Asked<Vec<u8>> {
        let mut retries = Retries::new(call.patient);
        loop {
            match self.once(&call).await {
                Ok(bytes) => return Ok(bytes),
                Err(failure) => tokio::time::sleep(self.pause_after(&mut retries, failure)?).await,
            }
        }
    }

    fn pause_after(&self, retries: &mut Retries, failure: Failure) -> Asked<Duration> {
        retries.pause_after(failure, self.reached.load(Ordering::Relaxed))
    }

    async fn once(&self, call: &Call) -> Tried<Vec<u8>> {
        let mut response = self.ask(call).await?;
        let mut out = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.broken(&e))? {
            if (out.len() + chunk.len()) as u64 > call.max {
                return Err(self.wrong("more than was asked for"));
            }
            out.extend_from_slice(&chunk);
        }
        Ok(out)
    }

    /// Hands on the body's bytes until it ends or the receiver is dropped.
    async fn hand_on(&self, call: &Call, give: &mpsc::Sender<Tried<Bytes>>) -> Tried<()> {
        let mut response = self.ask(call).await?;
        if response.content_length().is_some_and(|len| len != call.max) {
            return Err(self.wrong("more or less than was asked for"));
        }
        while let Some(chunk) = response.chunk().await.map_err(|e| self.broken(&e))? {
            if give.send(Ok(chunk)).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// The answer, if it is a good one.
    async fn ask(&self, call: &Call) -> Tried<Response> {
        let url = self.address.base.join(&call.path);
        let url = url.map_err(|e| Failure::Final(RepoError::usage(e.to_string(), "").into()))?;
        let client = if call.patient { &self.patient } else { &self.quick };
        let mut request = client.request(call.method.clone(), url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        if let Some((kind, bytes)) = &call.body {
            request = request.header(CONTENT_TYPE, *kind).body(bytes.clone());
        }
        let response = request.send().await.map_err(|e| self.broken(&e))?;
        self.reached.store(true, Ordering::Relaxed);
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response).await) }
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        let why = if error.is_timeout() { "it took too long".to_owned() } else { innermost(error) };
        let error = RepoError::io(format!("cannot reach {}", self.address.shown))(io::Error::other(why));
        Failure::Again(error.into(), None)
    }

    fn wrong(&self, why: &str) -> Failure {
        let error = RepoError::io(format!("{} sent {why}", self.address.shown))(io::ErrorKind::InvalidData.into());
        Failure::Again(error.into(), None)
    }

    async fn refused(&self, mut response: Response) -> Failure {
        let status = response.status();
        let text = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let code = text("x-error-code").unwrap_or_default();
        let after = text(RETRY_AFTER.as_str()).and_then(|t| t.trim().parse().ok());
        let mut body = Vec::new();
        // What it says is for people; that it says no is known.
        while let Ok(Some(chunk)) = response.chunk().await {
            if (body.len() + chunk.len()) as u64 > MAX_REFUSAL {
                break;
            }
            body.extend_from_slice(&chunk);
        }
        let refused = refused(&self.address.shown, status, &code, &body);
        let hopeless = [StatusCode::NOT_IMPLEMENTED, StatusCode::INSUFFICIENT_STORAGE];
        let again = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        match again && !hopeless.contains(&status) {
            true => Failure::Again(refused, after.map(Duration::from_secs)),
            false => Failure::Final(refused),
        }
    }
}
