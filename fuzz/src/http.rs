//! Targets: HTTP request bodies, given to the server's router without a socket: each is answered, and none with a
//! server error other than 507.

use crate::{mend, receive::scratch, repo};
use axum::{Router, body::Body};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use mdl_codec::CpuEngine;
use mdl_repo::Repo;
use mdl_server::{Options, Rates, app::App};
use std::{
    cell::RefCell,
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// The boundary of forms.
pub const BOUNDARY: &str = "x-boundary-x";
/// Requests before the server and what it keeps are made anew.
const REQUESTS: u32 = 400;
/// Bytes of an upload at most.
const MAX_UPLOAD: u64 = 1 << 20;

/// A request but for its body: method, path and query, media type.
type Route<'a> = (&'a str, &'a str, &'a str);

const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";
const FORM: &str = "multipart/form-data; boundary=x-boundary-x";

/// Our own API. The queries say `{"message":"m"}` and, in the second, `"base":"parent"` too.
const COMMIT: [Route<'static>; 9] = [
    ("POST", "/api/v1/repos/ada/gpt/commits?meta=%7B%22message%22%3A%22m%22%7D", "application/x-tar"),
    (
        "POST",
        "/api/v1/repos/ada/gpt/commits?meta=%7B%22message%22%3A%22m%22%2C%22base%22%3A%22parent%22%7D",
        "application/x-tar",
    ),
    ("POST", "/api/v1/repos/ada/gpt/commits", FORM),
    ("POST", "/api/v1/repos/ada/gpt/commits", JSON),
    ("PUT", "/api/v1/repos/ada/gpt/refs/heads/topic", JSON),
    ("POST", "/api/v1/repos/ada/gpt/uploads", JSON),
    ("POST", "/api/v1/repos", JSON),
    ("POST", "/api/v1/repos/ada/gpt/webhooks", JSON),
    ("POST", "/api/v1/repos/ada/gpt/notes/main", JSON),
];

/// The Hub's and git-lfs's, uploads by Xet last.
const HUB: [Route<'static>; 11] = [
    ("POST", "/api/models/ada/gpt/commit/main", "application/x-ndjson"),
    ("POST", "/api/models/ada/gpt/preupload/main", JSON),
    ("POST", "/api/models/ada/gpt/paths-info/main", JSON),
    ("POST", "/api/models/ada/gpt/paths-info/main", "application/x-www-form-urlencoded"),
    ("POST", "/api/validate-yaml", JSON),
    ("POST", "/ada/gpt.git/info/lfs/objects/batch", "application/vnd.git-lfs+json"),
    ("POST", "/ada/gpt.git/info/lfs/verify", "application/vnd.git-lfs+json"),
    ("POST", "/api/models/ada/gpt/tag/main", JSON),
    ("POST", "/login", "application/x-www-form-urlencoded"),
    ("POST", "/ada/gpt/info/lfs/xet/0123456789abcdef/v1/shards", OCTETS),
    (
        "POST",
        "/ada/gpt/info/lfs/xet/0123456789abcdef/v1/xorbs/default/\
         f513c2bd7d7713107deb51dd7704582284b7de2b9ab2411b771f2077a47d6bf7",
        OCTETS,
    ),
];

/// Clone, fetch and push; what comes after these is a pack that is pushed.
const SYNC: [Route<'static>; 7] = [
    ("POST", "/api/v1/repos/ada/gpt/sync/offer", JSON),
    ("POST", "/api/v1/repos/ada/gpt/sync/whole", JSON),
    ("POST", "/api/v1/repos/ada/gpt/sync/read", JSON),
    ("POST", "/api/v1/repos/ada/gpt/sync/lacking", OCTETS),
    ("POST", "/api/v1/repos/ada/gpt/sync/known", OCTETS),
    ("POST", "/api/v1/repos/ada/gpt/sync/pruned", JSON),
    ("POST", "/api/v1/repos/ada/gpt/sync/refs", JSON),
];
/// Number of the route that pushes a pack.
pub const PUSH: usize = SYNC.len();

/// A server over the small repository.
struct Site {
    router: Router,
    runtime: Runtime,
    left: u32,
    _app: App,
    _root: TempDir,
}

impl Site {
    fn new() -> Site {
        let root = scratch();
        fill(&root.path().join("ada/gpt"));
        let options = Options { max_upload: MAX_UPLOAD, sandbox: false, ..Options::new(root.path()) };
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(4).build();
        let app = App::new(options, Arc::new(CpuEngine::new())).expect("a server");
        Site {
            router: mdl_server::router(&app, &Rates::new(None)),
            runtime: runtime.expect("a runtime"),
            left: REQUESTS,
            _app: app,
            _root: root,
        }
    }

    /// Sends a request and takes the whole answer.
    fn send(&self, route: Route<'_>, body: &[u8]) -> StatusCode {
        let (method, path, kind) = route;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1:7878")
            .header("content-type", kind)
            .header("x-mdl-blake3", blake3::hash(body).to_hex().as_str())
            .body(Body::from(body.to_vec()))
            .expect("a request");
        self.runtime.block_on(async {
            let response = self.router.clone().oneshot(request).await.expect("an answer");
            let (parts, body) = response.into_parts();
            // An answer may break off where its sender finds damage.
            let text = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
            let failed = parts.status.is_server_error() && parts.status != StatusCode::INSUFFICIENT_STORAGE;
            assert!(!failed, "{method} {path}: {} {}", parts.status, String::from_utf8_lossy(&text));
            parts.status
        })
    }
}

/// A bare repository with the values of the small one.
fn fill(dir: &Path) {
    drop(Repo::init(dir, true, "main", Arc::new(CpuEngine::new())).expect("a repository"));
    for (key, value) in repo::small().values.iter().filter(|(k, _)| *k != "identity") {
        let path = dir.join(key);
        fs::create_dir_all(path.parent().expect("below the repository")).expect("a directory");
        fs::write(path, value).expect("a file");
    }
}

fn with_site(use_it: impl FnOnce(&Site)) {
    thread_local!(static SITE: RefCell<Option<Site>> = const { RefCell::new(None) });
    // One server in a process: its directories go by the process's own counters.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    SITE.with_borrow_mut(|site| {
        if site.as_ref().is_none_or(|s| s.left == 0) {
            *site = None;
            *site = Some(Site::new());
        }
        if let Some(site) = site {
            site.left -= 1;
            use_it(site);
        }
    });
}

/// The first byte chooses a route of our own API.
pub fn http_commit(data: &[u8]) {
    plain(&COMMIT, data);
}

/// The first byte chooses a route of the Hub's or git-lfs's.
pub fn http_hub(data: &[u8]) {
    plain(&HUB, data);
}

/// The first byte chooses a route of the sync protocol, or that the rest is a pack to push.
pub fn http_sync(data: &[u8]) {
    let Some((route, body)) = data.split_first() else {
        return;
    };
    if usize::from(*route) % (SYNC.len() + 1) != PUSH {
        return plain(&SYNC, &[&[*route % (SYNC.len() as u8 + 1)], body].concat());
    }
    let Some(name) = mend::pack::name(body) else { return };
    let name = mdl_objects::Id::from_bytes(name).to_hex();
    let size = body.len();
    let part = format!("/api/v1/repos/ada/gpt/sync/packs/{name}/parts/0?size={size}");
    let take = format!("{{\"packs\": [{{\"id\": \"{name}\", \"size\": {size}}}]}}");
    with_site(|site| {
        site.send(("PUT", &part, OCTETS), body);
        site.send(("POST", "/api/v1/repos/ada/gpt/sync/packs/take", JSON), take.as_bytes());
    });
}

fn plain(routes: &[Route<'_>], data: &[u8]) {
    let Some((route, body)) = data.split_first() else {
        return;
    };
    let route = routes[usize::from(*route) % routes.len()];
    with_site(|site| {
        site.send(route, body);
    });
}
