//! Receives the body of `POST .../commits`: the commit's fields, then its files, in one of three encodings. `incoming`
//! keeps the bytes, `tar` parses archives.

use crate::{
    api::commits::{meta::Meta, tar::Archive},
    incoming::{Holder, IncomingFile},
    request::{
        extract::{Chunks, gather},
        prelude::*,
    },
};
use axum::{
    body::{Body, BodyDataStream},
    extract::{FromRequest, Multipart, Request, multipart::Field},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fmt::Display,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, ready},
};

/// Longest JSON about a commit.
const MAX_META: usize = 1 << 20;
/// Most files of one request.
const MAX_FILES: usize = 20_000;
/// Bytes that the names of one request's files may have together.
const MAX_NAMES: usize = 16 << 20;
/// Bytes that may come between the contents of two parts: boundary and headers, and what was read ahead with them.
const MAX_HEAD: u64 = 256 << 10;
/// While the content of a part is read; once more came than may.
const NO_LIMIT: u64 = u64::MAX;
const SPENT: u64 = u64::MAX - 1;
/// Bytes that the parser of parts gets at a time.
const PIECE: usize = 64 << 10;

/// A received file.
#[derive(Debug)]
pub(super) struct Received {
    pub executable: bool,
    pub sha256: [u8; 32],
    /// Where it is; none: it was only hashed.
    pub kept: Option<IncomingFile>,
}

/// The files of a commit, by their names.
#[derive(Debug)]
pub(super) struct Intake {
    app: App,
    holder: Holder,
    keep: bool,
    left: u64,
    /// Bytes that names may still take.
    names: usize,
    pub files: BTreeMap<String, Received>,
}

impl Intake {
    fn room(&mut self, path: &str) -> Result<()> {
        let refuse = |why: String| Err(Problem::refused(why));
        for part in path.split('/') {
            if let Err(e) = mdl_objects::check_new_name(part) {
                let shown: String = path.chars().take(200).collect();
                return refuse(format!("{shown:?} cannot name a file: {e}"));
            }
        }
        if self.files.contains_key(path) {
            return refuse(format!("{path:?} was sent twice"));
        }
        let too_long = || Problem::too_large(format!("more than {MAX_NAMES} bytes of names"));
        self.names = self.names.checked_sub(path.len()).ok_or_else(too_long)?;
        if self.files.len() >= MAX_FILES {
            return Err(Problem::too_large(format!("more than {MAX_FILES} files")));
        }
        Ok(())
    }

    async fn file<E: Display>(&mut self, path: String, executable: bool, bytes: impl Chunks<E>) -> Result<()> {
        self.room(&path)?;
        let (sha256, len, kept) = if self.keep {
            let file = self.app.incoming().receive(&self.holder, bytes, None, self.left).await?;
            (file.sha256, file.len, Some(file))
        } else {
            let (sha256, len) = hash(bytes, self.left).await?;
            (sha256, len, None)
        };
        self.left = self.left.saturating_sub(len);
        self.files.insert(path, Received { executable, sha256, kept });
        Ok(())
    }

    async fn tar<E: Display>(&mut self, bytes: impl Chunks<E> + Unpin) -> Result<()> {
        let mut archive = Archive::new(bytes);
        while let Some(member) = archive.next().await? {
            // A file with a declared size over the limit is refused before it is read.
            if member.size > self.left {
                return Err(Problem::too_large(format!("more than {} bytes", self.app.incoming().max_upload)));
            }
            self.file(member.path, member.executable, archive.content()).await?;
        }
        Ok(())
    }
}

async fn hash<E: Display>(bytes: impl Chunks<E>, max: u64) -> Result<([u8; 32], u64)> {
    let (mut hasher, mut len, mut bytes) = (Sha256::new(), 0, pin!(bytes));
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk.map_err(|e| Problem::usage(format!("the upload broke off: {e}")))?;
        len += chunk.len() as u64;
        if len > max {
            return Err(Problem::too_large(format!("more than {max} bytes")));
        }
        hasher.update(&chunk);
    }
    Ok((hasher.finalize().into(), len))
}

/// A request whose files have not been read.
pub(super) enum Incoming {
    Multipart { parts: Multipart, head: Arc<AtomicU64> },
    Tar(BodyDataStream),
    Nothing,
}

impl Incoming {
    /// Reads the commit's fields.
    pub(super) async fn open(request: Request, query: Option<String>) -> Result<(Meta, Incoming)> {
        let kind = media_type(request.headers());
        if query.is_some() && kind != "application/x-tar" {
            return Err(Problem::usage("the parameter meta goes with a body of application/x-tar"));
        }
        match kind.as_str() {
            "application/x-tar" => {
                let json = query.ok_or_else(|| Problem::usage("a tar wants the parameter meta"))?;
                let body = request.into_body().into_data_stream();
                Ok((Meta::parse(json.as_bytes())?, Incoming::Tar(body)))
            }
            "application/json" => {
                let json = gather(request.into_body().into_data_stream(), MAX_META, "meta has ").await?;
                Ok((Meta::parse(&json)?, Incoming::Nothing))
            }
            "multipart/form-data" => Incoming::multipart(request).await,
            _ => Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "usage",
                "a commit is multipart/form-data, application/x-tar or application/json",
            )),
        }
    }

    async fn multipart(request: Request) -> Result<(Meta, Incoming)> {
        let head = Arc::new(AtomicU64::new(MAX_HEAD));
        let (parts, body) = request.into_parts();
        let body = Body::from_stream(bounded(body.into_data_stream(), head.clone()));
        let parts = Multipart::from_request(Request::from_parts(parts, body), &()).await;
        let mut parts = parts.map_err(|e| Problem::usage(e.body_text()))?;
        let first = parts.next_field().await.map_err(|e| unreadable(&e, &head))?;
        let field = first.filter(|f| f.name() == Some("meta"));
        let field = field.ok_or_else(|| Problem::usage("the first part must be `meta`"))?;
        head.store(NO_LIMIT, Ordering::Relaxed);
        let meta = Meta::parse(&gather(texts(field), MAX_META, "meta has ").await?)?;
        Ok((meta, Incoming::Multipart { parts, head }))
    }

    /// Reads the files; `keep` says whether they are wanted, or only their hashes. After an error nothing stays.
    pub(super) async fn files(self, app: &App, holder: Holder, keep: bool) -> Result<Intake> {
        let mut intake = Intake {
            app: app.clone(),
            holder,
            keep,
            left: app.incoming().max_upload,
            names: MAX_NAMES,
            files: BTreeMap::new(),
        };
        match self {
            Incoming::Nothing => {}
            Incoming::Tar(body) => intake.tar(body).await?,
            Incoming::Multipart { mut parts, head } => {
                let mut archive = false;
                loop {
                    head.store(MAX_HEAD, Ordering::Relaxed);
                    let Some(field) = parts.next_field().await.map_err(|e| unreadable(&e, &head))? else {
                        break;
                    };
                    head.store(NO_LIMIT, Ordering::Relaxed);
                    let name = field.name().unwrap_or_default().to_owned();
                    match name.as_str() {
                        "file" if !archive => {
                            let path = field.file_name().map(str::to_owned);
                            let path = path.ok_or_else(|| Problem::usage("a part `file` wants a filename"))?;
                            intake.file(path, false, texts(field)).await?;
                        }
                        "tar" if !archive && intake.files.is_empty() => {
                            archive = true;
                            intake.tar(Box::pin(texts(field))).await?;
                        }
                        _ => return Err(Problem::usage("behind `meta` come parts `file`, or one part `tar`")),
                    }
                }
            }
        }
        Ok(intake)
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let kind = value.and_then(|v| v.split(';').next()).unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// `head` says whether that is because too much came.
fn unreadable(error: &axum::extract::multipart::MultipartError, head: &AtomicU64) -> Problem {
    match head.load(Ordering::Relaxed) {
        SPENT => Problem::too_large(format!("more than {MAX_HEAD} bytes before the content of a part")),
        _ => Problem::usage(format!("the parts cannot be read: {}", error.body_text())),
    }
}

/// The parser of parts takes whatever is there before it looks at it, and holds everything until a part's headers are
/// whole. So it gets a little at a time, and between the contents of two parts no more than `head` says.
fn bounded(bytes: BodyDataStream, head: Arc<AtomicU64>) -> impl Chunks<String> + Send + 'static {
    let (mut bytes, mut held, mut breathe) = (Box::pin(bytes), Bytes::new(), false);
    stream::poll_fn(move |cx| {
        if std::mem::take(&mut breathe) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if held.is_empty() {
            held = match ready!(bytes.as_mut().poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(e)) => return Poll::Ready(Some(Err(e.to_string()))),
                Some(Ok(chunk)) => chunk,
            };
        }
        breathe = true;
        let piece = held.split_to(held.len().min(PIECE));
        let left = head.load(Ordering::Relaxed);
        if left != NO_LIMIT {
            let Some(left) = left.checked_sub(piece.len() as u64) else {
                head.store(SPENT, Ordering::Relaxed);
                return Poll::Ready(Some(Err("the headers of a part are too long".to_owned())));
            };
            head.store(left, Ordering::Relaxed);
        }
        Poll::Ready(Some(Ok(piece)))
    })
}

fn texts(field: Field<'_>) -> impl Chunks<String> {
    stream::try_unfold(field, |mut field| async move {
        match field.chunk().await {
            Ok(Some(chunk)) => Ok(Some((chunk, field))),
            Ok(None) => Ok(None),
            Err(e) => Err(e.body_text()),
        }
    })
}
