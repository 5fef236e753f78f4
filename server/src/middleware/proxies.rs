//! `Forwarded` and `X-Forwarded-*` headers: trusted from the operator's proxies, removed from all other requests.
//!
//! The outermost middleware: everything inside sees the client's own address.

use crate::{
    app::App,
    listener::Peer,
    options::Options,
    problem::{Problem, Result},
};
use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderName, header, request::Parts};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const LONGEST_HOST: usize = 255;

/// Middleware: replaces the peer by the client that the trusted proxies name.
pub async fn name_client(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied().unwrap_or_default();
    let trusted = |ip: &IpAddr| app.options().trusted_proxies.iter().any(|net| net.contains(ip));
    let near = peer.0.to_canonical();
    let client = match trusted(&near) {
        true => client(near, request.headers(), &trusted),
        false => {
            for name in [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, header::FORWARDED] {
                request.headers_mut().remove(name);
            }
            near
        }
    };
    request.extensions_mut().insert(Peer(client));
    next.run(request).await
}

/// Returns the last address on the way here that is not a trusted proxy's. If both headers are there and differ, the
/// client forged one of them: then neither counts.
fn client(near: IpAddr, headers: &HeaderMap, trusted: &impl Fn(&IpAddr) -> bool) -> IpAddr {
    let lists = [
        (headers.contains_key(FORWARDED_FOR), addresses(headers, &FORWARDED_FOR, |hop| Some(hop))),
        (headers.contains_key(header::FORWARDED), addresses(headers, &header::FORWARDED, forwarded_for)),
    ];
    let mut told = lists.into_iter().filter(|(there, _)| *there).map(|(_, way)| last_untrusted(near, way, trusted));
    match (told.next(), told.next()) {
        (None, _) => near,
        (Some(a), Some(b)) if a != b => near,
        (Some(client), _) => client,
    }
}

/// Backwards from here, as far as proxies are trusted and what they say can be read.
fn last_untrusted(near: IpAddr, way: Vec<Option<IpAddr>>, trusted: &impl Fn(&IpAddr) -> bool) -> IpAddr {
    let mut client = near;
    for hop in way.into_iter().rev() {
        let Some(hop) = hop else { break };
        client = hop;
        if !trusted(&hop) {
            break;
        }
    }
    client
}

/// Parses the addresses in a header's lines, in order; none: something else is there.
fn addresses(headers: &HeaderMap, name: &HeaderName, of: impl Fn(&str) -> Option<&str>) -> Vec<Option<IpAddr>> {
    let lines = headers.get_all(name).iter().map(|v| v.to_str().unwrap_or("?"));
    let hops = lines.flat_map(|line| line.split(','));
    hops.map(|hop| of(hop.trim()).and_then(address)).collect()
}

/// `for=` of one element of `Forwarded` (RFC 7239).
fn forwarded_for(element: &str) -> Option<&str> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let mut found = pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case("for"));
    found.next().map(|(_, value)| value.trim().trim_matches('"'))
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let plain = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let found = plain.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|a| a.ip()));
    found.ok().map(|ip| ip.to_canonical())
}

/// Where the client reaches this server, for links: `https://models.example.org`.
pub(crate) fn base_url(options: &Options, headers: &HeaderMap) -> Result<String> {
    if let Some(url) = &options.public_url {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    // Only headers of trusted proxies are left.
    let said = |name: &HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
    let scheme = match said(&FORWARDED_PROTO) {
        Some("https") => "https",
        Some("http") => "http",
        _ if options.tls.is_some() => "https",
        _ => "http",
    };
    let fits = |h: &&str| {
        !h.is_empty()
            && h.len() <= LONGEST_HOST
            && h.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b))
    };
    let host = match (said(&FORWARDED_HOST).filter(fits), headers.get(header::HOST)) {
        (Some(host), _) => host.to_owned(),
        (None, Some(host)) => {
            let host = host.to_str().ok().filter(fits);
            host.ok_or_else(|| Problem::usage("the Host header names no host"))?.to_owned()
        }
        (None, None) => options.listen.to_string(),
    };
    Ok(format!("{scheme}://{host}"))
}

impl Default for Peer {
    fn default() -> Peer {
        Peer(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

impl FromRequestParts<App> for Peer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Peer> {
        Ok(parts.extensions.get::<Peer>().copied().unwrap_or_default())
    }
}

/// A network or a single address, as an operator writes it.
pub fn parse_network(text: &str) -> std::result::Result<IpNet, String> {
    let single = text.parse::<IpAddr>().map(|ip| IpNet::from(ip.to_canonical()));
    single.or_else(|_| text.parse()).map_err(|_| format!("{text:?} is no address and no network such as 10.0.0.0/8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(headers: &[(&'static str, &str)]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a header"));
        }
        let proxies: Vec<IpNet> = ["127.0.0.1", "10.0.0.0/8"].map(|t| parse_network(t).expect("a network")).into();
        let trusted = |ip: &IpAddr| proxies.iter().any(|net| net.contains(ip));
        client("127.0.0.1".parse().expect("an address"), &map, &trusted).to_string()
    }

    #[test]
    fn the_client_is_the_last_address_that_no_proxy_has() {
        assert_eq!(told(&[]), "127.0.0.1");
        assert_eq!(told(&[("x-forwarded-for", "192.0.2.1")]), "192.0.2.1");
        assert_eq!(told(&[("x-forwarded-for", "6.6.6.6, 192.0.2.1, 10.1.2.3")]), "192.0.2.1");
        assert_eq!(told(&[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "192.0.2.1")]), "192.0.2.1");
        assert_eq!(told(&[("x-forwarded-for", "10.0.0.1, 10.0.0.2")]), "10.0.0.1");
        assert_eq!(told(&[("x-forwarded-for", "192.0.2.1:4711")]), "192.0.2.1");
        assert_eq!(told(&[("forwarded", "for=6.6.6.6, for=\"[2001:db8::1]:80\";proto=https")]), "2001:db8::1");
        assert_eq!(told(&[("forwarded", "proto=https;For=192.0.2.1")]), "192.0.2.1");
    }

    #[test]
    fn what_cannot_be_read_ends_the_way() {
        assert_eq!(told(&[("x-forwarded-for", "")]), "127.0.0.1");
        assert_eq!(told(&[("x-forwarded-for", "192.0.2.1, unknown")]), "127.0.0.1");
        assert_eq!(told(&[("x-forwarded-for", "192.0.2.1, unknown, 10.0.0.1")]), "10.0.0.1");
        assert_eq!(told(&[("forwarded", "by=192.0.2.1")]), "127.0.0.1");
    }

    #[test]
    fn two_headers_that_differ_count_for_nothing() {
        let same = [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.1")];
        assert_eq!(told(&same), "192.0.2.1");
        let differ = [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=6.6.6.6")];
        assert_eq!(told(&differ), "127.0.0.1");
    }

    #[test]
    fn networks_are_read_as_operators_write_them() {
        for good in ["10.0.0.0/8", "127.0.0.1", "::1", "2001:db8::/32"] {
            assert!(parse_network(good).is_ok(), "{good}");
        }
        for bad in ["", "10.0.0.0/33", "proxy", "10.0.0.0/8/8"] {
            assert!(parse_network(bad).is_err(), "{bad}");
        }
    }
}
