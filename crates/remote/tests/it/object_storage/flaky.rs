//! An object store that fails on purpose, below `ObjectStorage`: answers that do not come, puts that come late, replies
//! that end early.

use async_trait::async_trait;
use futures_util::{StreamExt, stream, stream::BoxStream};
use mdl_remote::object::ObjectStorage;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// What goes wrong, each in percent of the calls that it can happen to.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPlan {
    /// Conditional puts that happen and are not confirmed.
    pub unconfirmed: u64,
    /// Conditional puts that do not happen: status 500.
    pub broken: u64,
    /// Conditional puts that are not confirmed and happen later.
    pub late: u64,
    /// Conditional puts that do not happen: status 409.
    pub busy: u64,
    /// Replies to reads that end early.
    pub cut: u64,
    /// Reads that fail: status 500.
    pub unread: u64,
    /// Metadata is not kept.
    pub forgetful: bool,
}

/// What another writer does after an unconfirmed put, before it is looked for.
type Meanwhile = Box<dyn FnOnce() + Send>;

pub struct Flaky {
    pub inner: Arc<InMemory>,
    pub plan: Mutex<FaultPlan>,
    pub meanwhile: Mutex<Option<Meanwhile>>,
    /// Reads that were asked for.
    pub gets: AtomicU64,
    /// Puts and uploads in parts that were asked for.
    pub puts: AtomicU64,
    dice: AtomicU64,
}

impl fmt::Debug for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flaky")
    }
}

impl fmt::Display for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flaky")
    }
}

fn server_error() -> Error {
    Error::Generic { store: "flaky", source: "status 500, or nothing at all".into() }
}

impl Flaky {
    pub fn new(plan: FaultPlan) -> Arc<Flaky> {
        Flaky::over(Arc::default(), plan)
    }

    pub fn over(inner: Arc<InMemory>, plan: FaultPlan) -> Arc<Flaky> {
        Arc::new(Flaky {
            inner,
            plan: Mutex::new(plan),
            meanwhile: Mutex::default(),
            gets: AtomicU64::new(0),
            puts: AtomicU64::new(0),
            dice: AtomicU64::new(1),
        })
    }

    pub fn storage(self: &Arc<Self>) -> ObjectStorage {
        ObjectStorage::new(self.clone(), self.clone(), "a/prefix", "flaky://bucket/a/prefix")
    }

    pub fn set(&self, plan: FaultPlan) {
        *self.plan.lock().expect("plan") = plan;
    }

    fn now(&self) -> FaultPlan {
        *self.plan.lock().expect("plan")
    }

    /// A number below 100, another one each time.
    fn roll(&self) -> u64 {
        let n = self.dice.fetch_add(1, Ordering::Relaxed);
        let x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 & 0xffff_ffff
    }

    /// On a thread of its own: a storage blocks, and this one drives requests.
    fn let_others(&self) {
        let meanwhile = self.meanwhile.lock().expect("meanwhile").take();
        if let Some(meanwhile) = meanwhile {
            std::thread::spawn(meanwhile).join().expect("joined");
        }
    }

    fn happens(&self, percent: u64) -> bool {
        percent > 0 && self.roll() % 100 < percent
    }
}

#[async_trait]
impl ObjectStore for Flaky {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        let plan = self.now();
        let conditional = !matches!(options.mode, PutMode::Overwrite);
        if conditional && self.happens(plan.busy) {
            return Err(Error::AlreadyExists { path: path.to_string(), source: "status 409".into() });
        }
        if conditional && self.happens(plan.broken) {
            self.let_others();
            return Err(server_error());
        }
        if conditional && self.happens(plan.late) {
            let (inner, path, wait) = (self.inner.clone(), path.clone(), self.roll() % 40);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                // Refused, if it came too late.
                let _ = inner.put_opts(&path, payload, options).await;
            });
            return Err(server_error());
        }
        let unconfirmed = conditional && self.happens(plan.unconfirmed);
        let done = self.inner.put_opts(path, payload, options).await;
        if unconfirmed {
            self.let_others();
            return Err(server_error());
        }
        done
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let plan = self.now();
        self.gets.fetch_add(1, Ordering::Relaxed);
        if self.happens(plan.unread) {
            return Err(server_error());
        }
        let head = options.head;
        let mut got = self.inner.get_opts(path, options).await?;
        if plan.forgetful {
            got.attributes = Default::default();
        }
        if !head && self.happens(plan.cut) {
            let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.clone());
            let bytes = got.bytes().await?;
            let half = bytes.slice(..bytes.len() / 2);
            return Ok(GetResult {
                payload: GetResultPayload::Stream(stream::once(async move { Ok(half) }).boxed()),
                meta,
                range,
                attributes,
                extensions: Default::default(),
            });
        }
        Ok(got)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
