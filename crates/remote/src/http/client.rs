//! HTTP clients: their timeouts, and the pauses between two tries.

use super::address::Address;
use crate::runtime;
use mdl_repo::{RepoError, Result};
use reqwest::{Client, redirect::Policy};
use std::{error::Error, io, time::Duration};

const CONNECT: Duration = Duration::from_secs(10);
/// How long the other side may send nothing.
const STALL: Duration = Duration::from_secs(60);
/// A connection that was idle for longer may be about to be closed.
const IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long the server may take over long work (checking what was sent, encoding anew).
pub(super) const THINK: Duration = Duration::from_secs(3600);

/// The client for requests that are answered at once, or (`patient`) for those that take long.
pub(super) fn client(address: &Address, patient: bool) -> Result<Client> {
    runtime::choose_tls();
    let mut builder = Client::builder()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .tcp_keepalive(KEEPALIVE)
        .user_agent(concat!("mdl/", env!("CARGO_PKG_VERSION")));
    builder = if patient { builder.timeout(THINK) } else { builder.read_timeout(STALL) };
    if address.loopback {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|e| RepoError::io("cannot make an HTTP client")(io::Error::other(innermost(&e))))
}

/// The innermost cause: what the others add is the URL and the obvious.
pub(crate) fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Twice as long each time, with a random part, so that clients do not retry together.
pub(super) fn pause(tries: u32) -> Duration {
    let mut random = [0; 2];
    let share = getrandom::fill(&mut random).map_or(0.5, |()| f64::from(u16::from_le_bytes(random)) / 65536.0);
    let full = FIRST_PAUSE.saturating_mul(1 << tries.min(10)).min(LONGEST_PAUSE);
    full.mul_f64(0.5 + share / 2.0)
}
