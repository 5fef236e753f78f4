//! Host header check: the names and addresses a server goes by. Stops DNS rebinding, where the browser names another.
//!
//! Wherever no token is sent, rights depend on the requested host: the request may come from another site's page.

use crate::{
    options::Options,
    problem::{Problem, Result},
};
use http::{HeaderMap, Uri, header};
use std::{collections::HashSet, net::IpAddr};

/// Host names that requests without a token may name.
#[derive(Debug)]
pub struct Hosts {
    names: HashSet<String>,
    listen: IpAddr,
}

impl Hosts {
    /// Loopback names, the address that is listened at, the public URL's host, and those that were named.
    pub fn new(options: &Options) -> Result<Hosts> {
        let mut names = HashSet::new();
        for name in &options.hosts {
            let plain = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if plain.parse::<IpAddr>().is_err() && (plain.is_empty() || !plain.chars().all(fits)) {
                return Err(Problem::usage(format!("{name:?} is no name of a host"))
                    .hint("a name or an address, without scheme and port: models.example.org"));
            }
            names.insert(plain);
        }
        if let Some(url) = &options.public_url {
            names.insert(public_host(url)?);
        }
        Ok(Hosts { names, listen: options.listen.ip() })
    }

    /// Returns whether a request names a host of this server. One that names none is not from a browser.
    pub fn know(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::HOST).iter();
        match (values.next(), values.next()) {
            (None, _) => true,
            (Some(host), None) => host.to_str().is_ok_and(|host| self.knows(host_of(host))),
            (Some(_), Some(_)) => false,
        }
    }

    fn knows(&self, host: &str) -> bool {
        if is_loopback(host) || self.names.contains(&host.to_ascii_lowercase()) {
            return true;
        }
        // An IP address cannot be rebound by DNS.
        let address = host.parse::<IpAddr>();
        address.is_ok_and(|ip| ip == self.listen || (self.listen.is_unspecified() && !ip.is_unspecified()))
    }

    /// Returns whether only loopback names are known.
    pub fn are_loopback(&self) -> bool {
        self.names.iter().all(|name| is_loopback(name))
    }
}

/// Returns the host of a `Host` header, without port and brackets; empty: invalid.
pub(super) fn host_of(value: &str) -> &str {
    match value.strip_prefix('[') {
        // Behind the bracket comes a port or nothing.
        Some(rest) => match rest.split_once(']') {
            Some((host, rest)) if rest.is_empty() || rest.starts_with(':') => host,
            _ => "",
        },
        None => value.rsplit_once(':').map_or(value, |(host, _)| host),
    }
}

/// Whether a host is this machine for every browser.
fn is_loopback(host: &str) -> bool {
    let name = host.to_ascii_lowercase();
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || name == "localhost" || name.ends_with(".localhost")
}

/// Returns the host of the public URL.
fn public_host(url: &str) -> Result<String> {
    let wrong = || Problem::usage(format!("{url:?} is no public URL")).hint("such as https://models.example.org");
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|_| matches!(uri.scheme_str(), Some("http" | "https")));
    let host = host.ok_or_else(wrong)?;
    Ok(host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listen: &str, named: &[&str], url: Option<&str>) -> Hosts {
        let options = Options {
            listen: listen.parse().expect("an address"),
            hosts: named.iter().map(|n| (*n).to_owned()).collect(),
            public_url: url.map(str::to_owned),
            ..Options::new(".")
        };
        Hosts::new(&options).expect("hosts")
    }

    fn know(hosts: &Hosts, host: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header"));
        hosts.know(&headers)
    }

    #[test]
    fn a_loopback_server_goes_by_loopback_names() {
        let hosts = hosts("127.0.0.1:7878", &[], None);
        for good in ["localhost", "localhost:9", "LOCALHOST", "127.0.0.1", "127.8.8.8:1", "[::1]:80", "x.localhost"] {
            assert!(know(&hosts, good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[::1].evil",
            "2130706433",
            "192.168.1.5",
            "0.0.0.0",
            "localhost.",
        ] {
            assert!(!know(&hosts, bad), "{bad}");
        }
        let mut twice = HeaderMap::new();
        twice.append(header::HOST, "localhost".parse().expect("a header"));
        twice.append(header::HOST, "evil.example".parse().expect("a header"));
        assert!(!hosts.know(&twice));
        assert!(hosts.know(&HeaderMap::new()), "no browser");
        assert!(hosts.are_loopback());
    }

    #[test]
    fn others_are_named_by_the_operator_or_are_the_address() {
        let named = hosts("192.168.1.5:80", &["Box.lan", "10.0.0.9"], Some("https://models.example.org/x"));
        for good in ["box.LAN:80", "10.0.0.9", "models.example.org", "192.168.1.5:80", "localhost"] {
            assert!(know(&named, good), "{good}");
        }
        assert!(!know(&named, "192.168.1.6") && !know(&named, "example.org") && !named.are_loopback());
        let any = hosts("0.0.0.0:80", &[], None);
        assert!(know(&any, "192.168.1.6:80") && know(&any, "[fe80::1]") && !know(&any, "box.lan"));
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for bad in ["", "http://x", "a/b", "a b", "x:80"] {
            let options = Options { hosts: vec![bad.to_owned()], ..Options::new(".") };
            assert!(Hosts::new(&options).is_err(), "{bad:?}");
        }
        for bad in ["models.example.org", "ftp://x", "https://", "/x"] {
            let options = Options { public_url: Some(bad.to_owned()), ..Options::new(".") };
            assert!(Hosts::new(&options).is_err(), "{bad:?}");
        }
    }
}
