//! Limits open connections, in all and per client; idle ones are closed to make room for new ones.
//!
//! A connection is idle from when it was accepted until its first request, and between two requests: then it may be
//! closed at any time. While a request is answered it may not.

use ipnet::IpNet;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Notify, time::timeout};

/// A connection idle for less is not closed for others: its next request may be about to come.
const LEAST_IDLE: Duration = Duration::from_secs(1);
/// How often it is looked again whether there is room.
const AGAIN: Duration = Duration::from_millis(100);
/// IPv6 prefix length that counts as one client.
const SITE_BITS: u32 = 64;

#[derive(Debug)]
pub(super) struct Limits {
    /// In all.
    pub total: usize,
    /// From one client.
    pub per_client: usize,
    /// Clients of this machine (a proxy in front of the server, say) may have more.
    pub loopback_exempt: bool,
    /// Trusted proxies, which may have more.
    pub proxies: Vec<IpNet>,
}

impl Limits {
    /// How many a client may have, which this is an address of.
    fn most_for(&self, client: IpAddr, address: IpAddr) -> usize {
        let is_proxy = self.proxies.iter().any(|net| net.contains(&address.to_canonical()));
        match is_proxy || (self.loopback_exempt && client.is_loopback()) {
            true => usize::MAX,
            false => self.per_client,
        }
    }
}

/// The client has as many connections as it may have.
#[derive(Debug)]
pub(super) struct TooMany;

#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    table: Mutex<Table>,
    freed: Notify,
    start: Instant,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Arc<State>>,
    clients: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
pub(super) struct State {
    id: u64,
    client: IpAddr,
    start: Instant,
    /// Since when it is idle, in milliseconds after `start` plus one; 0: a request is being answered.
    idle: AtomicU64,
    /// Bytes wait until the client takes those before them.
    unsent: AtomicBool,
    leaving: AtomicBool,
    leave: Notify,
}

/// A place among the connections, for as long as it is held.
#[derive(Debug)]
pub(super) struct Seat {
    connections: Arc<Connections>,
    pub state: Arc<State>,
}

/// A request is being answered, for as long as it is held.
#[derive(Debug)]
pub(super) struct Busy(Arc<State>);

/// Maps an address to its client: the /64 network of IPv6, the IPv4 address of a mapped one.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let bits = v6.to_bits() >> SITE_BITS << SITE_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        other => other,
    }
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Arc<Connections> {
        Arc::new(Connections { limits, table: Mutex::default(), freed: Notify::new(), start: Instant::now() })
    }

    /// Waits until there is room for one more connection. Where there is none, the one that was idle for longest is
    /// closed. Refuses a client that has as many as it may have, none of them idle.
    pub(super) async fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Seat, TooMany> {
        let client = client_of(address);
        let most = self.limits.most_for(client, address);
        loop {
            {
                let mut table = self.table.lock();
                if table.count_of(client) >= most && !table.close_idle(Some(client)) {
                    return Err(TooMany);
                }
                if table.open.len() < self.limits.total || table.close_idle(None) {
                    let state = table.add(client, self.start);
                    let connections = self.clone();
                    return Ok(Seat { connections, state });
                }
            }
            let _ = timeout(AGAIN, self.freed.notified()).await;
        }
    }

    /// Closes the connection that was idle for longest, if any was for long enough.
    pub(super) fn close_idle(&self) -> bool {
        self.table.lock().close_idle(None)
    }
}

impl Table {
    fn count_of(&self, client: IpAddr) -> usize {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    fn add(&mut self, client: IpAddr, start: Instant) -> Arc<State> {
        let state = Arc::new(State {
            id: self.next,
            client,
            start,
            idle: AtomicU64::new(0),
            unsent: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            leave: Notify::new(),
        });
        state.set_idle();
        self.next += 1;
        self.open.insert(state.id, state.clone());
        *self.clients.entry(client).or_default() += 1;
        state
    }

    fn remove(&mut self, state: &State) {
        if self.open.remove(&state.id).is_none() {
            return;
        }
        if let Some(count) = self.clients.get_mut(&state.client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&state.client);
            }
        }
    }

    fn close_idle(&mut self, client: Option<IpAddr>) -> bool {
        let asked = self.open.values().filter(|s| client.is_none_or(|c| c == s.client));
        let idle = asked.filter_map(|s| Some((s.idle_for()?, s)));
        let longest = idle.max_by_key(|(idle, _)| *idle);
        let Some((_, state)) = longest.filter(|(idle, _)| *idle >= LEAST_IDLE) else {
            return false;
        };
        let state = state.clone();
        self.remove(&state);
        state.leaving.store(true, Ordering::SeqCst);
        state.leave.notify_one();
        true
    }
}

impl State {
    /// Returns how long it has been idle.
    fn idle_for(&self) -> Option<Duration> {
        let since = self.idle.load(Ordering::SeqCst).checked_sub(1)?;
        let idle = self.start.elapsed().saturating_sub(Duration::from_millis(since));
        (!self.unsent.load(Ordering::SeqCst)).then_some(idle)
    }

    fn set_idle(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.idle.store(now + 1, Ordering::SeqCst);
        if self.leaving.load(Ordering::SeqCst) {
            self.leave.notify_one();
        }
    }

    /// A request has come.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.idle.store(0, Ordering::SeqCst);
        Busy(self.clone())
    }

    /// Records whether unsent bytes wait for the client.
    pub(super) fn set_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Ordering::SeqCst);
    }

    /// Waits until the connection has to give way to another; never in the middle of a request.
    pub(super) async fn give_way(&self) {
        loop {
            self.leave.notified().await;
            if self.idle_for().is_some() {
                return;
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.table.lock().remove(&self.state);
        self.connections.freed.notify_one();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const SECOND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn connections(total: usize, per_client: usize) -> Arc<Connections> {
        Connections::new(Limits {
            total,
            per_client,
            loopback_exempt: true,
            proxies: vec!["198.51.100.0/24".parse().expect("a network")],
        })
    }

    /// As if it had been idle for so long.
    fn aged(seat: &Seat, age: Duration) {
        let then = u64::try_from((seat.state.start.elapsed() + Duration::from_secs(60) - age).as_millis());
        seat.state.idle.store(then.expect("milliseconds") + 1, Ordering::SeqCst);
    }

    fn old(mut connections: Arc<Connections>) -> Arc<Connections> {
        let minute = Duration::from_secs(60);
        let shared = Arc::get_mut(&mut connections).expect("nobody else has it");
        shared.start = shared.start.checked_sub(minute).expect("the machine runs for a minute");
        connections
    }

    #[tokio::test]
    async fn one_client_gets_no_more_than_its_share() {
        let connections = connections(8, 2);
        let held = [connections.admit(FIRST).await, connections.admit(FIRST).await];
        assert!(held.iter().all(Result::is_ok));
        assert!(connections.admit(FIRST).await.is_err());
        assert!(connections.admit(SECOND).await.is_ok(), "another client is let in");
        drop(held);
        assert!(connections.admit(FIRST).await.is_ok(), "what was closed counts no more");
        let local = "127.0.0.1".parse().expect("an address");
        let many = [connections.admit(local).await, connections.admit(local).await, connections.admit(local).await];
        assert!(many.iter().all(Result::is_ok), "a proxy on this machine");
        assert!(connections.table.lock().clients.len() == 1, "clients that left are forgotten");
    }

    #[tokio::test]
    async fn a_trusted_proxy_has_any_number() {
        let connections = connections(8, 2);
        let proxy = "::ffff:198.51.100.7".parse().expect("an address");
        let held = [connections.admit(proxy).await, connections.admit(proxy).await, connections.admit(proxy).await];
        assert!(held.iter().all(Result::is_ok));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| client_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3:4:5"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), FIRST);
        assert!(of("::1").is_loopback());
        assert_ne!(FIRST, SECOND);
    }

    #[tokio::test]
    async fn the_longest_idle_gives_way_and_a_busy_one_never() {
        let connections = old(connections(3, 3));
        let [a, b, c] = [
            connections.admit(FIRST).await.expect("room"),
            connections.admit(FIRST).await.expect("room"),
            connections.admit(FIRST).await.expect("room"),
        ];
        aged(&a, Duration::from_secs(62));
        aged(&b, Duration::from_secs(63));
        aged(&c, Duration::from_secs(64));
        let busy = c.state.busy();
        b.state.set_unsent(true);
        let seat = connections.admit(SECOND).await.expect("a gives way");
        assert!(a.state.leaving.load(Ordering::SeqCst));
        let full = timeout(Duration::from_millis(300), connections.admit(SECOND)).await;
        assert!(full.is_err(), "what is busy or has bytes to send is not closed, nor what has just come");
        drop((busy, seat));
        assert!(connections.admit(SECOND).await.is_ok());
    }

    #[tokio::test]
    async fn a_request_that_came_meanwhile_is_answered_first() {
        let connections = old(connections(1, 1));
        let seat = connections.admit(FIRST).await.expect("room");
        aged(&seat, Duration::from_secs(62));
        assert!(connections.close_idle());
        let busy = seat.state.busy();
        let early = timeout(Duration::from_millis(200), seat.state.give_way()).await;
        assert!(early.is_err(), "it was closed in the middle of a request");
        drop(busy);
        seat.state.give_way().await;
    }
}
