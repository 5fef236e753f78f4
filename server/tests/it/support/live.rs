//! A server listening on a socket, and its client.

use super::{Root, entry};
use mdl_objects::Id;
use mdl_remote::HttpPeer;
use mdl_repo::Repo;
use mdl_server::{
    Options,
    app::App,
    auth::{NewToken, Scope},
};
use std::sync::mpsc;
use tokio::runtime::Runtime;

/// Stops when it is dropped.
pub struct Live {
    pub app: App,
    pub url: String,
    runtime: Option<Runtime>,
}

impl Live {
    pub fn new(root: &Root, mut options: Options) -> Live {
        options.listen = "127.0.0.1:0".parse().expect("an address");
        let app = root.app(options);
        let runtime = Runtime::new().expect("a runtime");
        let (tell, told) = mpsc::channel();
        let serving = mdl_server::serve(app.clone(), move |url: &str| drop(tell.send(url.to_owned())));
        runtime.spawn(serving);
        let url = told.recv().expect("it listens");
        Live { app, url, runtime: Some(runtime) }
    }

    pub fn token(&self, name: &str, scope: Scope) -> String {
        let new = NewToken { name: name.to_owned(), repo: "ada/*".to_owned(), scope, expires_ms: None };
        self.app.tokens().create(new).expect("a token").1
    }

    pub fn peer(&self, token: Option<&str>) -> HttpPeer {
        HttpPeer::new(&format!("{}/ada/gpt", self.url), token.map(str::to_owned)).expect("a peer")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.app.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(10));
        }
    }
}

/// Names and bytes of all files of a version.
pub fn files(repo: &Repo, commit: &Id) -> Vec<(String, Vec<u8>)> {
    let names: Vec<String> = mdl_repo::files(repo, commit).expect("files").keys().cloned().collect();
    let read = |name: String| {
        let entry = entry(repo, commit, &name);
        let bytes = repo.odb().read_range(&entry, 0, entry.size).expect("bytes");
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}
