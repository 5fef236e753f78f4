//! Parses the commit body of the Hugging Face clients: NDJSON, read line by line as it arrives.

use crate::{
    hub::sha256_of,
    incoming::{Holder, Incoming, IncomingFile},
    problem::{Problem, Result},
    request::extract::Chunks,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use std::{collections::BTreeMap, convert::Infallible, fmt::Display, mem, pin::pin};

/// Longest line: a file that goes inside the commit, in base64.
const MAX_LINE: usize = 24 << 20;
/// Lines that a commit may have, empty ones too, and bytes of the names in them.
const MAX_CHANGES: usize = 100_000;
const MAX_NAMES: usize = 16 << 20;

/// A line.
#[derive(Deserialize)]
#[serde(tag = "key", content = "value", rename_all = "camelCase")]
enum Line {
    Header(Header),
    File(File),
    LfsFile(LfsFile),
    DeletedFile(Deleted),
    DeletedFolder(Deleted),
}

impl Line {
    /// Path that the line is about.
    fn name(&self) -> &str {
        match self {
            Line::Header(_) => "",
            Line::File(file) => &file.path,
            Line::LfsFile(file) => &file.path,
            Line::DeletedFile(deleted) | Line::DeletedFolder(deleted) => &deleted.path,
        }
    }
}

/// The commit's fields.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    #[serde(default)]
    summary: String,
    description: Option<String>,
    pub(super) parent_commit: Option<String>,
}

impl Header {
    pub(super) fn message(&self) -> String {
        match self.description.as_deref().map(str::trim) {
            None | Some("") => self.summary.clone(),
            Some(text) => format!("{}\n\n{text}", self.summary),
        }
    }
}

#[derive(Deserialize)]
struct File {
    path: String,
    #[serde(default)]
    content: String,
    encoding: Option<String>,
}

#[derive(Deserialize)]
struct LfsFile {
    path: String,
    algo: Option<String>,
    oid: String,
    size: Option<u64>,
}

#[derive(Deserialize)]
struct Deleted {
    path: String,
}

/// New contents of a path.
#[derive(Debug)]
pub(super) enum Change {
    /// These bytes.
    Put(IncomingFile),
    /// An object that was uploaded before.
    Lfs {
        /// SHA-256 of it.
        oid: String,
        /// Its length, if the client said it.
        size: Option<u64>,
    },
}

/// A parsed commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) header: Header,
    /// New contents by path; the last line of a path wins.
    pub(super) put: BTreeMap<String, Change>,
    pub(super) deleted: Vec<String>,
    pub(super) deleted_folders: Vec<String>,
    lines: usize,
    names: usize,
    /// Bytes of the files inside the commit.
    pub(super) bytes: u64,
}

impl Changes {
    /// Reads all lines. Files inside the commit are received.
    pub(super) async fn read<E: Display>(
        stream: impl Chunks<E>,
        incoming: &Incoming,
        holder: &Holder,
    ) -> Result<Changes> {
        let (mut changes, mut header) = (Changes::default(), false);
        let mut lines = Lines::default();
        let mut stream = pin!(stream);
        while let Some(chunk) = stream.next().await {
            let mut chunk = chunk.map_err(|e| Problem::usage(format!("the commit broke off: {e}")))?;
            while let Some(line) = lines.next(&mut chunk)? {
                header |= changes.take(line, incoming, holder).await?;
            }
        }
        header |= changes.take(lines.buffer, incoming, holder).await?;
        match header {
            true => Ok(changes),
            false => Err(Problem::usage("the commit has no header")),
        }
    }

    /// Parses a line; returns whether it was the header.
    async fn take(&mut self, line: Vec<u8>, incoming: &Incoming, holder: &Holder) -> Result<bool> {
        self.lines += 1;
        if self.lines > MAX_CHANGES {
            return Err(Problem::too_large(format!("more than {MAX_CHANGES} lines in a commit")));
        }
        if line.trim_ascii().is_empty() {
            return Ok(false);
        }
        let parsed = serde_json::from_slice(&line);
        drop(line);
        let line: Line = parsed.map_err(|e| Problem::usage(format!("a line of the commit cannot be read: {e}")))?;
        self.names += line.name().len();
        if self.names > MAX_NAMES {
            return Err(Problem::too_large(format!("more than {MAX_NAMES} bytes of names in a commit")));
        }
        match line {
            Line::Header(header) => {
                self.header = header;
                return Ok(true);
            }
            Line::File(file) => {
                let (path, bytes) = decoded(file)?;
                let bytes = stream::iter([Ok::<_, Infallible>(Bytes::from(bytes))]);
                let left = incoming.max_upload.saturating_sub(self.bytes);
                let received = incoming.receive(holder, bytes, None, left).await?;
                self.bytes += received.len;
                self.put.insert(path, Change::Put(received));
            }
            Line::LfsFile(file) => {
                if file.algo.as_deref().is_some_and(|a| a != "sha256") {
                    return Err(Problem::usage("objects go by their SHA-256"));
                }
                if sha256_of(&file.oid).is_none() {
                    return Err(Problem::usage("objects are called by their SHA-256"));
                }
                self.put.insert(file.path, Change::Lfs { oid: file.oid, size: file.size });
            }
            Line::DeletedFile(file) => self.deleted.push(file.path),
            Line::DeletedFolder(folder) => self.deleted_folders.push(folder.path),
        }
        Ok(false)
    }
}

fn decoded(file: File) -> Result<(String, Vec<u8>)> {
    let bytes = match file.encoding.as_deref() {
        None | Some("utf-8") => file.content.into_bytes(),
        Some("base64") => {
            let bytes = BASE64_STANDARD.decode(&file.content);
            bytes.map_err(|e| Problem::usage(format!("{:?} is no base64: {e}", file.path)))?
        }
        Some(other) => return Err(Problem::usage(format!("no such encoding: {other:?}"))),
    };
    Ok((file.path, bytes))
}

/// Splits a stream into lines.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    /// Returns the next whole line, consuming its part of the chunk; `None` if the chunk ends before.
    fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Vec<u8>>> {
        let end = chunk.iter().position(|b| *b == b'\n');
        let part = chunk.split_to(end.map_or(chunk.len(), |at| at + 1));
        if self.buffer.len() + part.len() > MAX_LINE {
            let hint = "send larger files as LFS objects";
            return Err(Problem::too_large(format!("a line of more than {MAX_LINE} bytes")).hint(hint));
        }
        self.buffer.extend_from_slice(&part);
        Ok(end.map(|_| mem::take(&mut self.buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_the_chunks_are() {
        let text = b"one\ntwo\n\nthree";
        for size in 1..text.len() {
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            for chunk in text.chunks(size) {
                let mut chunk = Bytes::copy_from_slice(chunk);
                while let Some(line) = lines.next(&mut chunk).expect("short lines") {
                    out.push(String::from_utf8(line).expect("text"));
                }
            }
            assert_eq!(out, ["one\n", "two\n", "\n"]);
            assert_eq!(lines.buffer, b"three");
        }
        let mut long = Bytes::from(vec![b'x'; MAX_LINE + 1]);
        assert!(Lines::default().next(&mut long).is_err());
    }
}
