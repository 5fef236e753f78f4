//! A client of the Hugging Face Hub's read API: refs, history, trees and files of a model.

use crate::{credentials::token_for, runtime::block_on, runtime::choose_tls};
use mdl_repo::{Missing, RepoError, Result};
use reqwest::{
    Client, Response, StatusCode,
    header::{AUTHORIZATION, HeaderValue, LINK, RANGE},
    redirect::Policy,
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use std::{fs, io, path::Path, time::Duration};
use tokio::{io::AsyncWriteExt, time::sleep};
use url::{Host, Url};

/// Where the Hub is, unless `HF_ENDPOINT` or an option says otherwise.
pub const ENDPOINT: &str = "https://huggingface.co";
/// Most bytes of one page of an answer.
const PAGE: usize = 64 << 20;
/// Most bytes of all pages of a listing.
const LISTING: usize = 256 << 20;
const TRIES: u32 = 5;
const CONNECT: Duration = Duration::from_secs(10);
const STALL: Duration = Duration::from_secs(60);

/// A model on a Hub.
#[derive(Clone, Debug)]
pub struct HubModel {
    client: Client,
    base: Url,
    name: String,
    token: Option<HeaderValue>,
}

/// A branch or tag.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubRef {
    /// Short name.
    pub name: String,
    /// The commit that it points at.
    pub target_commit: String,
}

/// Branches and tags.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HubRefs {
    /// Branches.
    pub branches: Vec<HubRef>,
    /// Tags.
    pub tags: Vec<HubRef>,
}

/// Who made a commit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HubAuthor {
    /// The account's name.
    pub user: String,
}

/// A commit.
#[derive(Clone, Debug, Deserialize)]
pub struct HubCommit {
    /// Its id: ASCII letters and digits.
    #[serde(deserialize_with = "read_id")]
    pub id: String,
    /// First line of its message.
    pub title: String,
    /// The rest of it.
    #[serde(default)]
    pub message: String,
    /// Its authors.
    #[serde(default)]
    pub authors: Vec<HubAuthor>,
    /// When it was made (RFC 3339).
    #[serde(default)]
    pub date: String,
}

/// What LFS says of a file.
#[derive(Clone, Debug, Deserialize)]
pub struct HubLfs {
    /// SHA-256, in hexadecimal digits.
    pub oid: String,
}

/// A file of a revision.
#[derive(Clone, Debug, Deserialize)]
pub struct HubFile {
    #[serde(rename = "type")]
    kind: String,
    /// Path in the model.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// The id of its git blob: of a pointer, where the file is in LFS.
    pub oid: String,
    /// There for files in LFS.
    pub lfs: Option<HubLfs>,
}

/// An id goes into URLs and messages.
fn read_id<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    let id = String::deserialize(from)?;
    let is_id = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric());
    if is_id { Ok(id) } else { Err(D::Error::custom("a commit's id is none")) }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Whether an endpoint is the one that `HF_TOKEN` is for.
fn is_own(base: &Url, named: Option<&str>) -> bool {
    Url::parse(named.unwrap_or(ENDPOINT)).is_ok_and(|own| own.origin() == base.origin())
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

impl HubModel {
    /// A model `OWNER/NAME` (or a bare name) at an endpoint. The token is that of `HF_TOKEN`, if the endpoint is of the
    /// origin that `HF_ENDPOINT` names (default: huggingface.co) or is trusted with it (`is_trusted`); else that of
    /// `MDL_TOKEN` or the credentials file. It goes to the endpoint alone, and over plain HTTP only to this machine.
    ///
    /// # Errors
    /// No such URL; a credentials file that others can read.
    pub fn new(endpoint: &str, name: &str, is_trusted: bool) -> Result<HubModel> {
        choose_tls();
        let bad = |why: &str| RepoError::usage(format!("the endpoint is no address: {why}"), "write https://HOST");
        // Not repeated: a password may be in it.
        let mut base = Url::parse(endpoint).map_err(|e| bad(&e.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(bad("it begins with neither https:// nor http://"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(bad("it has a name or password in it; tokens are in HF_TOKEN"));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let hf = variable("HF_TOKEN").filter(|_| is_trusted || is_own(&base, variable("HF_ENDPOINT").as_deref()));
        let token = hf.map_or_else(|| token_for(&base), |t| Ok(Some(t)))?;
        let safe = is_loopback(&base) || base.scheme() == "https";
        let mut builder = Client::builder()
            .redirect(Policy::limited(10))
            .connect_timeout(CONNECT)
            .read_timeout(STALL)
            .user_agent(concat!("mdl/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|e| failed("make an HTTP client", e))?;
        let header = |token: String| HeaderValue::from_str(&format!("Bearer {}", token.trim())).ok();
        let token = token.filter(|_| safe).and_then(header);
        Ok(HubModel { client, base, name: name.to_owned(), token })
    }

    fn url(&self, parts: &[&str]) -> Result<Url> {
        let mut url = self.base.clone();
        let cannot = || RepoError::usage(format!("{} cannot have a path", self.base), "write https://HOST");
        let mut path = url.path_segments_mut().map_err(|()| cannot())?;
        path.pop_if_empty();
        for part in parts {
            path.extend(part.split('/'));
        }
        drop(path);
        Ok(url)
    }

    /// Branches and tags.
    ///
    /// # Errors
    /// No such model, no right to it; an answer that makes no sense; the network.
    pub fn refs(&self) -> Result<HubRefs> {
        let (refs, ..) = self.page(self.url(&["api/models", &self.name, "refs"])?)?;
        Ok(refs)
    }

    /// The commits of a revision, newest first.
    ///
    /// # Errors
    /// As `refs`.
    pub fn commits(&self, revision: &str) -> Result<Vec<HubCommit>> {
        // One segment: a branch's name may hold a slash.
        let mut url = self.url(&["api/models", &self.name, "commits"])?;
        url.path_segments_mut().map_err(|()| wrong("a URL without a path"))?.push(revision);
        self.pages(url)
    }

    /// The files of a revision.
    ///
    /// # Errors
    /// As `refs`.
    pub fn files(&self, revision: &str) -> Result<Vec<HubFile>> {
        let mut url = self.url(&["api/models", &self.name, "tree"])?;
        url.path_segments_mut().map_err(|()| wrong("a URL without a path"))?.push(revision);
        url.set_query(Some("recursive=true&expand=false"));
        let all: Vec<HubFile> = self.pages(url)?;
        Ok(all.into_iter().filter(|f| f.kind == "file").collect())
    }

    /// Brings a file of a revision to `to`, whose directory exists. What an earlier call left in `to` is gone on with.
    ///
    /// # Errors
    /// As `refs`; an I/O error; more bytes than the file has. Nothing is verified here.
    pub fn download(&self, revision: &str, file: &HubFile, to: &Path) -> Result<()> {
        let mut url = self.url(&[&self.name, "resolve"])?;
        url.path_segments_mut()
            .map_err(|()| wrong("a URL without a path"))?
            .push(revision)
            .extend(file.path.split('/'));
        let (this, to, size) = (self.clone(), to.to_owned(), file.size);
        block_on(async move {
            let mut tries = 0;
            loop {
                let there = fs::metadata(&to).map_or(0, |m| m.len());
                if there == size && size > 0 {
                    return Ok(());
                }
                let from = if there < size { there } else { 0 };
                match this.append(url.clone(), from, size, &to).await {
                    Err(error) if tries + 1 < TRIES && is_passing(&error) => tries += 1,
                    done => return done,
                }
                sleep(Duration::from_millis(250 << tries)).await;
            }
        })?
    }

    async fn append(&self, url: Url, from: u64, size: u64, to: &Path) -> Result<()> {
        let cannot = || RepoError::io(format!("cannot write {}", to.display()));
        let range = (from > 0).then(|| format!("bytes={from}-"));
        let mut response = self.get(url, range.as_deref()).await?;
        // A server that gives the whole file all the same is begun anew with.
        let goes_on = response.status() == StatusCode::PARTIAL_CONTENT;
        let mut out = tokio::fs::OpenOptions::new();
        out.create(true).write(true);
        let mut out = if goes_on { out.append(true) } else { out.truncate(true) }.open(to).await.map_err(cannot())?;
        let mut written = if goes_on { from } else { 0 };
        while let Some(part) = response.chunk().await.map_err(|e| failed("read an answer", e))? {
            written += part.len() as u64;
            if written > size {
                return Err(wrong("more bytes than the file has"));
            }
            out.write_all(&part).await.map_err(cannot())?;
        }
        out.flush().await.map_err(cannot())?;
        match written == size {
            true => Ok(()),
            false => Err(RepoError::io("a download broke off")(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// All pages of a listing.
    fn pages<T: DeserializeOwned + Send + 'static>(&self, url: Url) -> Result<Vec<T>> {
        let (mut out, mut next, mut room) = (Vec::new(), Some(url), LISTING);
        while let Some(url) = next.take() {
            let (page, more, len): (Vec<T>, _, usize) = self.page(url)?;
            out.extend(page);
            next = more;
            // An empty page takes room too, so that a listing ends.
            room = room.checked_sub(len.max(1 << 12)).ok_or_else(|| wrong("a listing that does not end"))?;
        }
        Ok(out)
    }

    fn page<T: DeserializeOwned + Send + 'static>(&self, url: Url) -> Result<(T, Option<Url>, usize)> {
        let this = self.clone();
        block_on(async move {
            let mut tries = 0;
            loop {
                match this.once(url.clone()).await {
                    Err(error) if tries + 1 < TRIES && is_passing(&error) => tries += 1,
                    done => return done,
                }
                sleep(Duration::from_millis(250 << tries)).await;
            }
        })?
    }

    /// A page, the address of the next one, and the page's length in bytes.
    async fn once<T: DeserializeOwned>(&self, url: Url) -> Result<(T, Option<Url>, usize)> {
        let mut response = self.get(url.clone(), None).await?;
        let link = response.headers().get(LINK).and_then(|v| v.to_str().ok()).and_then(next_page);
        let next = link.and_then(|link| url.join(&link).ok()).filter(|next| next.origin() == self.base.origin());
        let mut bytes = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|e| failed("read an answer", e))? {
            bytes.extend_from_slice(&part);
            if bytes.len() > PAGE {
                return Err(wrong("an answer that is too long"));
            }
        }
        Ok((serde_json::from_slice(&bytes).map_err(|e| wrong(&e.to_string()))?, next, bytes.len()))
    }

    async fn get(&self, url: Url, range: Option<&str>) -> Result<Response> {
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let response = request.send().await.map_err(|e| failed(&format!("reach {}", self.base), e))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::NOT_FOUND => {
                Err(RepoError::not_found(Missing::Repository, format!("{} at the Hub", self.name)))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let hint = "set HF_TOKEN to a token that may read it (over plain HTTP it is sent to this machine only)";
                Err(RepoError::user(format!("the Hub gives no access to {}", self.name), hint))
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(RepoError::io(format!("the Hub answers {status}"))(io::ErrorKind::ConnectionAborted.into()))
            }
            status => Err(wrong(&format!("status {status}"))),
        }
    }
}

fn is_passing(error: &RepoError) -> bool {
    matches!(error, RepoError::Io { .. })
}

fn failed(what: &str, error: reqwest::Error) -> RepoError {
    let cause = crate::http::innermost(&error.without_url());
    RepoError::io(format!("cannot {what}"))(io::Error::other(cause))
}

fn wrong(what: &str) -> RepoError {
    RepoError::user(format!("the Hub's answer makes no sense: {what}"), "is it the endpoint of a Hub?")
}

/// The address in `Link: <...>; rel="next"`.
#[doc(hidden)]
pub fn next_page(link: &str) -> Option<String> {
    link.split(',').find_map(|part| {
        let (address, rest) = part.trim().strip_prefix('<')?.split_once('>')?;
        rest.contains("rel=\"next\"").then(|| address.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_linked() {
        assert_eq!(next_page("</api/x?p=1>; rel=\"next\"").as_deref(), Some("/api/x?p=1"));
        assert_eq!(next_page("</a>; rel=\"prev\", </b>; rel=\"next\"").as_deref(), Some("/b"));
        assert_eq!(next_page("nothing"), None);
    }

    #[test]
    fn ids_of_commits_are_ids() {
        let read = |id: &str| serde_json::from_str::<HubCommit>(&format!(r#"{{"id": "{id}", "title": "x"}}"#));
        assert_eq!(read("4f3a09c1").expect("an id").id, "4f3a09c1");
        for id in ["", "../x", "12345678é0", &"a".repeat(65)] {
            assert!(read(id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn names_and_revisions_become_parts_of_a_path() {
        let model = HubModel::new("http://localhost:1/hub", "ada/gpt", false).expect("a model");
        assert_eq!(
            model.url(&["api/models", "ada/gpt", "refs"]).expect("a url").path(),
            "/hub/api/models/ada/gpt/refs"
        );
        for bad in ["ftp://x", "https://ada:hunter2@x", "https://ada:hunter2@x y"] {
            let error = HubModel::new(bad, "ada/gpt", false).expect_err(bad);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn the_hubs_token_is_for_its_own_origin() {
        let own = |base: &str, named| is_own(&Url::parse(base).expect("a url"), named);
        assert!(own("https://huggingface.co/", None) && own("http://localhost:80/x", Some("http://localhost")));
        for base in ["http://huggingface.co/", "https://huggingface.co:444/", "https://huggingface.co.example/"] {
            assert!(!own(base, None), "{base}");
        }
        assert!(!own("https://huggingface.co/", Some("https://mirror.example")));
    }
}
