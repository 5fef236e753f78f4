//! Every route, called by every kind of caller on every kind of repository: the answer follows from what the route
//! says it needs.

mod site;

use self::site::{ABSENT, Answer, Caller, DAMAGED, PRIVATE, PUBLIC, SECRET, Site, does_something};
use http::{Method, StatusCode};
use mdl_server::request::routes::{Need, Route};
use std::{fs, path::Path};

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/routes.txt");
/// Set: the list is written instead of compared.
const WRITE: &str = "MDL_WRITE_ROUTES";

/// Whether a caller is let through, or how it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Through,
    /// No token, or one that is no good.
    Unknown,
    /// Known, but not allowed; or sent by another site.
    Refused,
}

/// Whether it is a page, or what pages link to: there a session counts.
fn is_looked_at(path: &str) -> bool {
    !path.starts_with("/api/") && path != "/metrics" && !path.contains("/info/lfs/")
}

fn verdict(path: &str, need: Need, method: &Method, caller: Caller, repo: &str) -> Verdict {
    if need == Need::Nothing {
        return Verdict::Through;
    }
    let elsewhere = matches!(caller, Caller::CrossSite | Caller::CrossSiteCookie);
    if elsewhere && !method.is_safe() {
        return Verdict::Refused;
    }
    if matches!(caller, Caller::WrongToken | Caller::Expired | Caller::Revoked) {
        return Verdict::Unknown;
    }
    let cookie = matches!(caller, Caller::Cookie | Caller::CrossSiteCookie);
    let unknown = caller == Caller::Nobody || (cookie && !(method.is_safe() && is_looked_at(path)));
    let rights = match caller {
        _ if unknown => 0,
        Caller::Foreign => 0,
        // Signed in, whatever the token allows.
        Caller::Read | Caller::Cookie | Caller::CrossSiteCookie => 1,
        Caller::Write => 2,
        _ => 3,
    };
    let wanted = match need {
        Need::Nothing | Need::Anyone => 0,
        Need::Known if unknown => 1,
        Need::Known => 0,
        Need::Read if repo == PUBLIC => 0,
        Need::Read => 1,
        Need::Write | Need::WriteOrLink => 2,
        Need::Admin | Need::AdminOfNamed => 3,
    };
    match rights >= wanted {
        true => Verdict::Through,
        false if unknown => Verdict::Unknown,
        false => Verdict::Refused,
    }
}

fn holds(verdict: Verdict, answer: &Answer, repo: &str, need: Need) -> bool {
    let status = answer.status;
    let of_a_repo = !matches!(need, Need::Nothing | Need::Anyone | Need::Known | Need::AdminOfNamed);
    match verdict {
        Verdict::Unknown => status == StatusCode::UNAUTHORIZED,
        Verdict::Refused => status == StatusCode::FORBIDDEN,
        Verdict::Through if of_a_repo && repo == ABSENT => status == StatusCode::NOT_FOUND,
        Verdict::Through if of_a_repo && repo == DAMAGED => status.is_client_error() && !is_refusal(status),
        Verdict::Through => !is_refusal(status) && !status.is_server_error(),
    }
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 405 | 421)
}

/// The route's method, and HEAD where GET answers it.
fn methods(route: &Route) -> Vec<Method> {
    let own: Method = route.method.parse().expect("a method");
    match own == Method::GET {
        true => vec![own, Method::HEAD],
        false => vec![own],
    }
}

/// All routes; those that change more come later.
fn routes() -> Vec<(Route, Need)> {
    let needs = mdl_server::route_table().into_iter();
    let said = |route: Route| {
        let need = route.need;
        assert!(need.is_some(), "{route}: what does it need?");
        need.map(|need| (route, need))
    };
    let mut all: Vec<_> = needs.filter_map(said).collect();
    all.sort_by_key(|(route, need)| (*need == Need::Admin, route.method == "DELETE"));
    all
}

#[test]
fn the_list_of_routes_is_whole_and_each_says_what_it_needs() {
    let mut lines: Vec<String> = routes().iter().map(|(route, _)| route.to_string()).collect();
    lines.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
    let text = lines.join("\n") + "\n";
    if std::env::var_os(WRITE).is_some() {
        fs::write(LIST, &text).expect("written");
    }
    let kept = fs::read_to_string(Path::new(LIST)).expect("server/routes.txt");
    assert_eq!(text, kept, "run this test with {WRITE}=1 and look at what changed");
}

#[tokio::test]
async fn who_may_not_is_refused_by_every_route_alike_and_changes_nothing() {
    let site = Site::new().await;
    let before = site.stored();
    for (route, need) in routes() {
        for (method, caller) in methods(&route).iter().flat_map(|m| Caller::ALL.map(|c| (m, c))) {
            let mut seen = Vec::new();
            for repo in [PRIVATE, ABSENT, DAMAGED, PUBLIC] {
                let verdict = verdict(&route.path, need, method, caller, repo);
                if verdict == Verdict::Through {
                    continue;
                }
                let answer = site.ask(&route, method, caller, repo).await;
                let what = format!("{method} {route} by {caller:?} of {repo}: {} {}", answer.status, answer.body);
                assert!(holds(verdict, &answer, repo, need), "{what}, not {verdict:?}");
                assert!(!answer.seen(repo).contains(SECRET), "{what}");
                seen.push((answer.seen(repo), what));
            }
            for (other, what) in seen.iter().skip(1) {
                assert_eq!(*other, seen[0].0, "what is refused tells of what there is: {what}");
            }
        }
    }
    assert!(site.stored() == before, "a caller that was refused changed something");
}

#[tokio::test]
async fn who_may_comes_through_every_route() {
    for caller in Caller::ALL {
        let site = Site::new().await;
        for (route, need) in routes() {
            for (method, repo) in
                methods(&route).iter().flat_map(|m| [PRIVATE, PUBLIC, ABSENT, DAMAGED].map(|r| (m, r)))
            {
                let verdict = verdict(&route.path, need, method, caller, repo);
                if verdict != Verdict::Through {
                    continue;
                }
                let answer = site.ask(&route, method, caller, repo).await;
                let what = format!("{method} {route} by {caller:?} of {repo}: {} {}", answer.status, answer.body);
                assert!(holds(verdict, &answer, repo, need), "{what}");
                // What the refused sent would have done something.
                let did = !does_something(&route) || repo != PRIVATE || answer.status.is_success();
                assert!(did || answer.status == StatusCode::CONFLICT, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_route_is_the_same_for_every_repository() {
    let site = Site::new().await;
    let mut paths: Vec<String> = routes().into_iter().map(|(route, _)| route.path).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        let own: Vec<Method> = routes().iter().filter(|(r, _)| r.path == path).flat_map(|(r, _)| methods(r)).collect();
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            let verb: Method = method.parse().expect("a method");
            if own.contains(&verb) {
                continue;
            }
            let route = Route { method: "GET", path: path.clone(), need: None };
            let answers = [
                site.ask(&route, &verb, Caller::Nobody, PRIVATE).await,
                site.ask(&route, &verb, Caller::Nobody, ABSENT).await,
            ];
            assert_eq!(answers[0].status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path} is not in the list");
            assert_eq!(answers[0].seen(PRIVATE), answers[1].seen(ABSENT), "{method} {path}");
        }
    }
}
