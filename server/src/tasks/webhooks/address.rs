//! Which addresses a webhook may go to: public ones. A user who may set a webhook must not make this machine talk to
//! its private network.

use crate::problem::{Problem, Result};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

const LONGEST_URL: usize = 2000;
const LOOK_UP: Duration = Duration::from_secs(5);
/// Ports below these are other services'.
const FREE_PORTS: u16 = 1024;

/// Whether an address is one of the Internet at large.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        // This network, private, loopback, link-local (with the clouds' metadata).
        (0 | 10 | 127, _, _) | (172, 16..=31, _) | (192, 168, _) | (169, 254, _)
        // Carriers' NAT, protocol assignments, 6to4 relays, benchmarks.
        | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _)
        // Documentation; multicast, reserved, broadcast.
        | (192, 0, 2) | (198, 51, 100) | (203, 0, 113) | (224..=255, _, _)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        // IPv4 in another guise: mapped, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        // Teredo and other protocol assignments, documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Only this part of the space has been given out.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Parses a URL and checks whether a webhook may go there, as far as that is known without a DNS lookup.
pub fn check(text: &str, private: bool) -> Result<Url> {
    let refuse = |why: &str| Err(Problem::refused(why));
    if text.len() > LONGEST_URL {
        return refuse("the URL is too long");
    }
    let Ok(url) = Url::parse(text) else {
        return refuse("that is no URL");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return refuse("webhooks go to http and https only");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("a URL with a name and password in it is refused: use the secret");
    }
    let Some(host) = url.host_str() else {
        return refuse("the URL names no host");
    };
    if private {
        return Ok(url);
    }
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    if literal.is_ok_and(|ip| !is_public(ip)) {
        return refuse("the address is not a public one");
    }
    match url.port_or_known_default() {
        Some(80 | 443 | FREE_PORTS..) => Ok(url),
        _ => refuse("webhooks go to the ports 80 and 443, and those from 1024 up"),
    }
}

/// DNS resolver that answers only where every address is a public one. Connections go to the addresses it gave, without
/// a second lookup.
#[derive(Clone, Copy, Debug)]
pub struct Guarded {
    /// Whether addresses that are not public will do.
    pub private: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let private = self.private;
        Box::pin(async move {
            let look_up = tokio::net::lookup_host((name.as_str().to_owned(), 0));
            let found = tokio::time::timeout(LOOK_UP, look_up).await??;
            Ok(admitted(found.collect(), private)?)
        })
    }
}

fn admitted(found: Vec<SocketAddr>, private: bool) -> io::Result<Addrs> {
    if found.is_empty() || (!private && found.iter().any(|a| !is_public(a.ip()))) {
        let why = "the name leads to an address that is not a public one";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(Box::new(found.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "2001:200::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2400::1",
        ];
        let other = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:101::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:10::1",
            "2001:20::1",
            "2001:2::1",
            "2001:db8::1",
            "3fff::1",
            "3fff:fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
            "4000::1",
        ];
        let ask = |text: &str| is_public(text.parse().expect(text));
        public.iter().for_each(|a| assert!(ask(a), "{a} is public"));
        other.iter().for_each(|a| assert!(!ask(a), "{a} is not public"));
    }

    #[test]
    fn one_address_that_is_not_public_spoils_a_name() {
        let at = |ip: &str| SocketAddr::new(ip.parse().expect(ip), 0);
        assert!(admitted(vec![at("8.8.8.8"), at("1.1.1.1")], false).is_ok());
        assert!(admitted(vec![at("8.8.8.8"), at("127.0.0.1")], false).is_err());
        assert!(admitted(vec![at("127.0.0.1")], true).is_ok());
        assert!(admitted(Vec::new(), true).is_err());
    }

    #[test]
    fn urls_that_lead_inside_are_refused() {
        for good in [
            "https://example.org/hook",
            "http://example.org:8080/",
            "https://8.8.8.8/x?y=z",
            "http://[2606:4700::1111]:443/",
        ] {
            assert!(check(good, false).is_ok(), "{good}");
        }
        for bad in [
            "",
            "example.org",
            "ftp://example.org/",
            "file:///etc/passwd",
            "gopher://x/",
            "http://u:p@example.org/",
            "http://u@example.org/",
            "http://127.0.0.1:8080/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[fd00:ec2::254]/",
            "https://example.org:22/",
            "https://example.org:25/",
            "http://０.0.0.0/",
            "http://10.0.0.1./",
        ] {
            assert!(check(bad, false).is_err(), "{bad}");
        }
        assert!(check("http://127.0.0.1:22/", true).is_ok());
        assert!(check("http://u:p@127.0.0.1/", true).is_err());
    }
}
