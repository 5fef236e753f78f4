//! CSRF protection: refuses requests from other sites' pages that would change something.

use crate::{
    auth::hosts::host_of,
    options::Options,
    problem::{Problem, Result},
};
use http::{HeaderMap, HeaderName, Method, Uri, header};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Origin of a site: scheme, host and port.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Origin {
    fn parse(text: &str) -> Option<Origin> {
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        if uri.authority()?.as_str().contains('@') {
            return None;
        }
        Some(Origin { host: uri.host()?.to_ascii_lowercase(), port: uri.port_u16().unwrap_or(usual), scheme })
    }
}

/// Refuses a request that would change something if a page of another site sent it. Only browsers send these headers.
pub(super) fn refuse_other_sites(options: &Options, method: &Method, headers: &HeaderMap) -> Result<()> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let fetched = headers.get_all(FETCH_SITE).iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let own = match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => is_own(options, headers, origin.to_str().unwrap_or_default()),
        (Some(_), Some(_)) => false,
    };
    if own && fetched.into_iter().all(|site| site == "same-origin" || site == "none") {
        return Ok(());
    }
    Err(Problem::forbidden("a page of another site sent this")
        .hint("behind a proxy that does HTTPS, `mdl serve` wants --public-url"))
}

/// Returns whether an origin is this server's: its public URL, else the scheme and host of the request.
fn is_own(options: &Options, headers: &HeaderMap, origin: &str) -> bool {
    let Some(origin) = Origin::parse(origin) else {
        return false;
    };
    let public = options.public_url.as_deref().and_then(Origin::parse);
    if public.as_ref() == Some(&origin) {
        return true;
    }
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    // Its public name is valid with the public URL's scheme and port only.
    let plain = host_of(host).to_ascii_lowercase();
    let is_public = public.is_some_and(|p| p.host.trim_start_matches('[').trim_end_matches(']') == plain);
    !is_public && Origin::parse(&format!("{scheme}://{host}")).as_ref() == Some(&origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: Option<&str>, headers: &[(&'static str, &str)]) -> bool {
        let options = Options { public_url: url.map(str::to_owned), ..Options::new(".") };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a header"));
        }
        refuse_other_sites(&options, &Method::POST, &map).is_err()
    }

    #[test]
    fn an_origin_counts_with_its_scheme_and_port() {
        let host = ("host", "localhost:7878");
        assert!(!refused(None, &[host]));
        assert!(!refused(None, &[host, ("origin", "http://localhost:7878")]));
        for bad in [
            "https://localhost:7878",
            "http://localhost",
            "http://localhost:7879",
            "http://localhost:7878.evil.example",
            "http://evil@localhost:7878",
            "null",
            "",
            "localhost:7878",
        ] {
            assert!(refused(None, &[host, ("origin", bad)]), "{bad}");
        }
        assert!(refused(None, &[("origin", "http://localhost:7878")]), "no host");
        let twice = [host, ("origin", "http://localhost:7878"), ("origin", "http://evil.example")];
        assert!(refused(None, &twice));
    }

    #[test]
    fn under_its_public_name_a_server_has_the_public_origin_alone() {
        let (url, host) = (Some("https://models.example.org"), ("host", "models.example.org"));
        assert!(!refused(url, &[host, ("origin", "https://models.example.org")]));
        assert!(!refused(url, &[host, ("origin", "https://models.example.org:443")]));
        assert!(refused(url, &[host, ("origin", "http://models.example.org")]));
        let direct = [("host", "127.0.0.1:7878"), ("origin", "http://127.0.0.1:7878")];
        assert!(!refused(url, &direct));
    }

    #[test]
    fn browsers_say_which_site_a_request_is_from() {
        for site in ["cross-site", "same-site", "anything"] {
            assert!(refused(None, &[("host", "localhost"), ("sec-fetch-site", site)]), "{site}");
        }
        for site in ["same-origin", "none"] {
            assert!(!refused(None, &[("host", "localhost"), ("sec-fetch-site", site)]), "{site}");
        }
    }
}
