//! Rate limit on failed authentication per client address: wrong tokens, passwords, cookies, links.
//!
//! Valid credentials are never refused, so that clients who share an address with an attacker still get in.

use crate::problem::Problem;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::{HeaderValue, StatusCode, header};
use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
};

/// Counts failed attempts by address.
#[derive(Debug)]
pub struct Failures(Option<DefaultKeyedRateLimiter<IpAddr>>);

impl Failures {
    /// Allows so many a minute, all of them at once; 0: any number.
    pub fn new(per_minute: u32) -> Failures {
        Failures(NonZeroU32::new(per_minute).map(|n| RateLimiter::keyed(Quota::per_minute(n))))
    }

    /// Counts one more from this address. 429: there were too many.
    pub fn count(&self, from: IpAddr) -> Result<(), Problem> {
        match &self.0 {
            Some(limiter) if limiter.check_key(&network(from)).is_err() => Err(too_many()),
            _ => Ok(()),
        }
    }

    /// Forgets addresses that were quiet for long.
    pub fn sweep(&self) {
        if let Some(limiter) = &self.0 {
            limiter.retain_recent();
        }
    }
}

fn too_many() -> Problem {
    let message = "too many tokens that are no good came from this address";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate", message)
        .hint("a token that is good is taken at any time")
        .header(header::RETRY_AFTER, HeaderValue::from_static("10"))
}

/// Returns the /64 network of an IPv6 address: one client usually has all of it.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_number_and_a_network_has_one() {
        let failures = Failures::new(3);
        let count = |text: &str| failures.count(text.parse().expect("an address")).is_ok();
        assert!((0..3).all(|_| count("192.0.2.1")) && !count("192.0.2.1"));
        assert!(count("192.0.2.2"));
        assert!(count("2001:db8::1") && count("2001:db8::2") && count("2001:db8::3") && !count("2001:db8::4"));
        assert!(count("2001:db8:0:1::1"));
        let any = Failures::new(0);
        assert!((0..100).all(|_| any.count("192.0.2.1".parse().expect("an address")).is_ok()));
    }
}
