//! HTML pages: each answers, holds nothing that would run, and shows what is there. Names and messages are untrusted.

use crate::support::{Root, memory, safetensors};
use axum::{Router, body::Body};
use http::{Request, Response, StatusCode, header};
use mdl_objects::{Id, Signature};
use mdl_repo::{CommitRequest, Repo, Silent};
use mdl_server::{
    Anonymous, Options, Rates,
    app::App,
    auth::{NewToken, Scope},
    router,
};
use std::collections::BTreeMap;
use tower::ServiceExt;

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";
const EVIL: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}\u{7}";
const CARD: &str = "---\nlicense: mit\n---\n# A model\n<script>alert(1)</script>\n\n[docs](docs/a.md) ![p](p.png)\n";

fn layers(n: usize) -> Vec<(String, usize, usize)> {
    let mut out = vec![("embed.weight".to_owned(), 16, 8)];
    for i in 0..n {
        out.push((format!("layers.{i}.attention.wq.weight"), 8, 8));
        out.push((format!("layers.{i}.mlp.w1.weight"), 16, 8));
    }
    out.push(("<b>head</b>".to_owned(), 8, 16));
    out
}

fn model(version: u64) -> Vec<u8> {
    let named = layers(3);
    let shapes: Vec<(&str, usize, usize)> = named.iter().map(|(n, r, c)| (n.as_str(), *r, *c)).collect();
    safetensors(&shapes, version)
}

fn request(version: u64, message: &str, branch: Option<&str>) -> CommitRequest {
    let files = vec![
        ("model.safetensors", model(version)),
        ("README.md", CARD.as_bytes().to_vec()),
        ("docs/<img src=x>.md", b"text <script>".to_vec()),
        ("docs/a.md", b"hello".to_vec()),
    ];
    let loss = if version == 5 { f64::NAN } else { 3.0 / (version as f64 + 1.0) };
    CommitRequest {
        files: Some(files.into_iter().map(|(rel, bytes)| memory(rel, bytes)).collect()),
        message: message.to_owned(),
        branch: branch.map(str::to_owned),
        step: Some(version * 100),
        metrics: BTreeMap::from([("eval/loss".to_owned(), loss), (format!("a{EVIL}"), f64::INFINITY)]),
        meta: BTreeMap::from([(EVIL.to_owned(), EVIL.repeat(100))]),
        ..CommitRequest::default()
    }
}

/// A repository with branches that part, a tag, and hostile texts; and the ids of its commits.
fn fill(repo: &Repo) -> Vec<Id> {
    let mut ids = Vec::new();
    for version in 0..8 {
        let message = match version {
            6 => format!("{EVIL}\n\n{}", "long ".repeat(4000)),
            v => format!("version {v}"),
        };
        let branch = (version % 3 == 2).then_some("side");
        ids.push(mdl_repo::commit(repo, &request(version, &message, branch), &Silent).expect("a commit").id);
    }
    mdl_repo::create_tag(repo, "v1'<b>", &ids[3], Some(EVIL), false).expect("a tag");
    ids
}

struct Site {
    root: Root,
    app: App,
    router: Router,
    ids: Vec<Id>,
}

fn site(change: impl FnOnce(&mut Options)) -> Site {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    let ids = fill(&repo);
    root.repo("ada/empty");
    drop(repo);
    let mut options = root.options();
    change(&mut options);
    let app = root.app(options);
    Site { router: router(&app, &Rates::new(None)), app, ids, root }
}

impl Site {
    async fn ask(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.expect("an answer")
    }

    async fn get(&self, url: &str) -> Response<Body> {
        self.ask(get(url).body(Body::empty()).expect("a request")).await
    }

    /// A page's text, once it is known to be a page that does no harm.
    async fn page(&self, url: &str) -> String {
        let response = self.get(url).await;
        assert_eq!(response.status(), StatusCode::OK, "{url}");
        let text = safe(url, response).await;
        check(url, &text);
        text
    }
}

fn get(url: &str) -> http::request::Builder {
    Request::get(url).header(header::ACCEPT, "text/html,*/*;q=0.8").header(header::HOST, "localhost:7878")
}

async fn body(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 8 << 20).await.expect("a body");
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Has the policy, and nothing that came from data is markup.
async fn safe(url: &str, response: Response<Body>) -> String {
    let headers = response.headers();
    assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY, "{url}");
    assert_eq!(headers[header::CONTENT_TYPE], "text/html; charset=utf-8", "{url}");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{url}");
    let text = body(response).await;
    assert_eq!(text.matches("<script").count(), 1, "{url}: the page's own script alone");
    for bad in ["<img src=x", "alert(1)</script>", "<b>head", "style=\"", "\u{202e}", "\u{7}"] {
        assert!(!text.contains(bad), "{url}: {bad:?}");
    }
    let handler = text
        .split('<')
        .skip(1)
        .any(|tag| tag.split('>').next().is_some_and(|t| t.contains(" onerror=") && !t.contains('"')));
    assert!(!handler, "{url}: a handler");
    text
}

/// Tags are closed in order, ids are there once, headings do not jump, tables say what they are.
fn check(url: &str, text: &str) {
    const VOID: [&str; 6] = ["meta", "link", "input", "br", "hr", "img"];
    let (mut open, mut level, mut ids) = (Vec::new(), 0, std::collections::HashSet::new());
    for tag in text.split('<').skip(1) {
        let inside = tag.split('>').next().unwrap_or_default();
        let name = inside.split([' ', '/']).next().unwrap_or_default();
        if let Some(closed) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{url}: </{closed}>");
            continue;
        }
        if let Some(id) = inside.split(" id=\"").nth(1).and_then(|r| r.split('"').next()) {
            assert!(ids.insert(id.to_owned()), "{url}: id {id} twice");
        }
        if let Some(n) = name.strip_prefix('h').and_then(|n| n.parse::<u32>().ok()) {
            assert!(n <= level + 1, "{url}: h{n} after h{level}");
            level = n;
        }
        if !VOID.contains(&name) && !inside.starts_with('!') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{url}: {open:?} are open");
    assert_eq!(text.matches("<h1").count(), 1, "{url}: one heading of the first level");
    let tables =
        text.split("<table").skip(1).filter(|t| !t.split("</table>").next().unwrap_or_default().contains("<caption"));
    assert_eq!(tables.count(), 0, "{url}: a table without a caption");
}

#[tokio::test]
async fn every_page_answers_and_nothing_in_it_runs() {
    let site = site(|_| {});
    let (first, last) = (site.ids[0].to_hex(), site.ids[7].to_hex());
    let evil = site.ids[6].to_hex();
    for url in [
        "/",
        "/login",
        "/logout",
        "/ada/gpt",
        "/ada/empty",
        "/ada/gpt/commits/main",
        "/ada/gpt/commits/main?all=1",
        "/ada/gpt/commits/v1'%3Cb%3E",
        "/ada/gpt/commits/refs%2Fheads%2Fside",
        &format!("/ada/gpt/commit/{first}"),
        &format!("/ada/gpt/commit/{evil}"),
        "/ada/gpt/commit/step-300",
        "/ada/gpt/tree/main",
        "/ada/gpt/tree/main/docs",
        "/ada/gpt/blob/main/model.safetensors",
        "/ada/gpt/blob/main/model.safetensors?filter=wq&start=1",
        "/ada/gpt/blob/main/docs/%3Cimg%20src=x%3E.md",
        "/ada/gpt/blob/main/README.md",
        "/ada/gpt/compare",
        &format!("/ada/gpt/compare/{first}/{last}"),
        "/ada/gpt/compare/HEAD/HEAD",
        "/ada/gpt/compare/main~1/side",
        "/ada/gpt/blame/main",
        "/ada/gpt/blame/main?by=amounts",
        "/ada/gpt/blame/main?by=%3Cb%3E&glob=%3Cimg*",
    ] {
        site.page(url).await;
    }
}

#[tokio::test]
async fn the_overview_shows_card_plots_and_commands() {
    let site = site(|_| {});
    let text = site.page("/ada/gpt").await;
    assert!(text.contains("<td>mit</td>") && text.contains("<h3>A model"), "the card");
    let head = site.ids[7].to_hex();
    assert!(
        text.contains(&format!("/ada/gpt/blob/{head}/docs/a.md"))
            && text.contains(&format!("/ada/gpt/resolve/{head}/p.png"))
    );
    let plots: Vec<&str> = text.split("<figure").skip(1).collect();
    assert_eq!(plots.len(), 4, "two metrics, bytes, ratio");
    assert!(plots[0].contains("eval/loss over step"), "losses first");
    let infinite = plots.iter().find(|p| p.contains("onerror")).expect("the other metric");
    assert!(infinite.contains("not finite") && !infinite.contains("NaN%") && !infinite.contains("inf%"));
    for wanted in [
        "HF_ENDPOINT=http://localhost:7878 hf download ada/gpt --revision main",
        "mdl clone http://localhost:7878/ada/gpt",
        "curl -LO http://localhost:7878/ada/gpt/resolve/main/model.safetensors",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    let mut forged = get("/ada/gpt").body(Body::empty()).expect("a request");
    let host = http::HeaderValue::from_static("localhost\"><script>");
    forged.headers_mut().insert(header::HOST, host);
    let refused = site.ask(forged).await;
    assert!(refused.status().is_client_error(), "{}", refused.status());
}

#[tokio::test]
async fn history_comes_in_pages_that_miss_nothing() {
    let root = Root::new();
    let repo = root.repo("ada/long");
    let mut commits = Vec::new();
    for n in 0..130u64 {
        let request = CommitRequest {
            files: Some(vec![memory("n.txt", n.to_string().into_bytes())]),
            message: format!("number {n}"),
            branch: (n % 4 == 3).then(|| "side".to_owned()),
            ..CommitRequest::default()
        };
        commits.push(mdl_repo::commit(&repo, &request, &Silent).expect("a commit").id.to_hex());
    }
    drop(repo);
    let app = root.app(root.options());
    let router = router(&app, &Rates::new(None));
    let mut url = "/ada/long/commits/main?all=1".to_owned();
    let mut seen = Vec::new();
    for page in 0..4 {
        let request = get(&url).body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        let text = body(response).await;
        check(&url, &text);
        let subjects = text.split("/ada/long/commit/").skip(1).filter_map(|t| t.get(..64));
        seen.extend(subjects.map(str::to_owned));
        let next = text.split(" rel=\"next\"").next().filter(|t| t.len() < text.len());
        let Some(before) = next else {
            assert_eq!(page, 2);
            break;
        };
        url = before.rsplit("href=\"").next().expect("a link").trim_end_matches('"').replace("&amp;", "&");
    }
    assert_eq!(seen.len(), commits.len(), "each once");
    seen.sort();
    commits.sort();
    assert_eq!(seen, commits);
}

#[tokio::test]
async fn comparisons_show_each_layer() {
    let site = site(|_| {});
    let (first, last) = (site.ids[0].to_hex(), site.ids[7].to_hex());
    let text = site.page(&format!("/ada/gpt/compare/{first}/{last}")).await;
    for layer in 0..3 {
        assert!(
            text.contains(&format!("aria-label=\"layers.{layer}, attention.wq.weight: relative change")),
            "{layer}"
        );
    }
    assert!(text.contains("Outside the layers") && text.contains("embed.weight"));
    assert!(text.contains("id=\"t0\"") && text.contains("href=\"#t0\""));
    let chosen = site.get(&format!("/ada/gpt/compare?a={first}&b=feature%2Fx")).await;
    assert_eq!(chosen.status(), StatusCode::SEE_OTHER);
    assert_eq!(chosen.headers()[header::LOCATION], format!("/ada/gpt/compare/{first}/feature%2Fx").as_str());
}

#[tokio::test]
async fn changes_over_time_say_what_changed_and_by_how_much() {
    let site = site(|_| {});
    let shares = site.page("/ada/gpt/blame/main?glob=model.safetensors:embed*").await;
    assert!(shares.contains("changed") && !shares.contains("relative change"), "{shares}");
    let amounts = site.page("/ada/gpt/blame/main?by=amounts&glob=model.safetensors:embed*").await;
    let diff = mdl_repo::BlameQuery {
        selection: mdl_repo::Selection::new(&["model.safetensors:embed*".to_owned()]).expect("a glob"),
        amounts: mdl_repo::Amounts::All,
        row: None,
        versions: 60,
    };
    let repo = site.root.repo("ada/gpt");
    let found = mdl_repo::blame(&repo, &site.ids[7], &diff, &Silent).expect("a blame");
    let sized = found.tensors.iter().flat_map(|t| &t.changes).filter(|c| c.rel_l2.is_some()).count();
    assert!(sized > 0);
    assert_eq!(amounts.matches(", relative change ").count(), 2 * sized, "in the title and the label of each cell");
}

#[tokio::test]
async fn errors_are_pages_for_browsers_and_documents_for_programs() {
    let site = site(|_| {});
    for (url, status) in [
        ("/ada/none", StatusCode::NOT_FOUND),
        ("/ada/gpt/commits/no-such%3Cscript%3E", StatusCode::NOT_FOUND),
        ("/ada/gpt/blob/main/none", StatusCode::NOT_FOUND),
        ("/ada/gpt/tree/main/model.safetensors", StatusCode::NOT_FOUND),
        ("/ada/gpt/blob/main/docs", StatusCode::NOT_FOUND),
        ("/ada/gpt/commits/main?after=x", StatusCode::BAD_REQUEST),
        ("/ada/gpt/commit/main?start=-1", StatusCode::BAD_REQUEST),
        ("/ada/g%00pt", StatusCode::BAD_REQUEST),
    ] {
        let response = site.get(url).await;
        assert_eq!(response.status(), status, "{url}");
        let text = safe(url, response).await;
        check(url, &text);
        let plain = site.ask(Request::get(url).body(Body::empty()).expect("a request")).await;
        assert_eq!(
            (plain.status(), plain.headers()[header::CONTENT_TYPE].to_str().ok()),
            (status, Some("application/problem+json")),
            "{url}"
        );
    }
    let huge = format!("/ada/gpt/commits/{}", "x".repeat(20_000));
    assert!(site.get(&huge).await.status().is_client_error());
    let last = format!("/ada/gpt/commit/main?start={}", usize::MAX);
    site.page(&last).await;
}

#[tokio::test]
async fn who_signs_in_sees_what_the_token_allows() {
    let site = site(|o| o.anonymous = Some(Anonymous::Nothing));
    let token = |scope, repo: &str| {
        let new = NewToken { name: EVIL.to_owned(), repo: repo.to_owned(), scope, expires_ms: None };
        site.app.tokens().create(new).expect("a token").1
    };
    let good = token(Scope::Read, "ada/gpt");
    let refused = site.get("/ada/gpt?x=1").await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(refused.headers().get(header::WWW_AUTHENTICATE).is_none(), "no window of the browser's own");
    let text = safe("/ada/gpt", refused).await;
    assert!(text.contains("/login?next=%2Fada%2Fgpt%3Fx%3D1"), "{text}");
    assert!(site.page("/").await.contains("/login"));

    let post = |form: String| {
        Request::post("/login")
            .header(header::HOST, "localhost:7878")
            .header(header::ORIGIN, "http://localhost:7878")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(form))
            .expect("a request")
    };
    let wrong = site.ask(post("token=mdl_00_00&next=%2F".to_owned())).await;
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    assert!(wrong.headers().get(header::SET_COOKIE).is_none());
    let mut session = String::new();
    for (next, to) in [
        ("%2Fada%2Fgpt", "/ada/gpt"),
        ("%2F%2Fevil.example", "/"),
        ("https%3A%2F%2Fevil.example", "/"),
        ("%2F%5Cevil.example", "/"),
    ] {
        let done = site.ask(post(format!("token={good}&next={next}"))).await;
        assert_eq!(
            (done.status(), done.headers()[header::LOCATION].to_str().ok()),
            (StatusCode::SEE_OTHER, Some(to)),
            "{next}"
        );
        let cookie = done.headers()[header::SET_COOKIE].to_str().expect("text");
        assert!(cookie.starts_with("mdl_session=") && cookie.contains("; Path=/;"), "{cookie}");
        assert!(!cookie.contains(&good), "the token is in the cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("Secure"));
        cookie.split(';').next().expect("a pair").clone_into(&mut session);
    }
    let mut foreign = post(format!("token={good}"));
    foreign.headers_mut().insert(header::ORIGIN, http::HeaderValue::from_static("https://evil.example"));
    assert_eq!(site.ask(foreign).await.status(), StatusCode::FORBIDDEN);

    let with =
        |url: &str, cookie: &str| get(url).header(header::COOKIE, cookie).body(Body::empty()).expect("a request");
    let seen = site.ask(with("/ada/gpt", &session)).await;
    assert_eq!(seen.status(), StatusCode::OK);
    safe("/ada/gpt", seen).await;
    let list = safe("/", site.ask(with("/", &session)).await).await;
    assert!(list.contains("href=\"/ada/gpt\"") && !list.contains("/ada/empty"));
    let narrow = site.ask(with("/ada/empty", &session)).await;
    assert_eq!(narrow.status(), StatusCode::FORBIDDEN);
    // A cookie that is no good any more does not keep its bearer from signing in.
    assert_eq!(site.ask(with("/login", "mdl_session=00")).await.status(), StatusCode::OK);
    for cookie in ["mdl_session=00".to_owned(), format!("mdl_token={good}"), format!("mdl_session={good}")] {
        let refused = site.ask(with("/ada/gpt", &cookie)).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{cookie}");
    }
    let out = Request::post("/logout")
        .header(header::HOST, "localhost:7878")
        .header(header::COOKIE, &session)
        .body(Body::empty())
        .expect("a request");
    let out = site.ask(out).await;
    assert!(out.headers()[header::SET_COOKIE].to_str().expect("text").contains("Max-Age=0"));
    let ended = site.ask(with("/ada/gpt", &session)).await;
    assert_eq!(ended.status(), StatusCode::UNAUTHORIZED, "the session goes on without its browser");
}

#[tokio::test]
async fn assets_are_kept_for_good_under_names_that_change() {
    let site = site(|_| {});
    let text = site.page("/").await;
    for (start, kind) in [("href=\"/assets/", "text/css"), ("src=\"/assets/", "text/javascript")] {
        let name = text.split(start).nth(1).and_then(|t| t.split('"').next()).expect("a link");
        let response = site.get(&format!("/assets/{name}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.headers()[header::CONTENT_TYPE].to_str().expect("text").starts_with(kind));
        assert!(response.headers()[header::CACHE_CONTROL].to_str().expect("text").contains("immutable"));
    }
    assert_eq!(site.get("/assets/mdl-0.css").await.status(), StatusCode::NOT_FOUND);
}

/// Authors' names are untrusted, too.
#[tokio::test]
async fn authors_are_shown_as_text() {
    let root = Root::new();
    let repo = root.repo("ada/gpt");
    let author = Signature { name: EVIL.to_owned(), email: EVIL.to_owned(), time_ms: i64::MAX, utc_offset_min: 0 };
    let request = CommitRequest { author: Some(author), ..request(0, "m", None) };
    let id = mdl_repo::commit(&repo, &request, &Silent).expect("a commit").id;
    drop(repo);
    let app = root.app(root.options());
    let router = router(&app, &Rates::new(None));
    for url in [
        "/".to_owned(),
        "/ada/gpt".to_owned(),
        format!("/ada/gpt/commit/{}", id.to_hex()),
        "/ada/gpt/commits/main".to_owned(),
    ] {
        let request = get(&url).body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK, "{url}");
        check(&url, &safe(&url, response).await);
    }
}
