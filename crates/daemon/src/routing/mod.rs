//! Route feeds: an FPM server for each router that configures a server, and listeners on the kernel routing tables of
//! namespaces. All feeds add the received routes to the router's RIB.

mod kernel;
mod keys;
mod namespace;
mod peer;
mod replay;
mod routers;
mod server;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_route::feed::{Feed, FeedCounts, Links, MAIN_TABLE, RoutePeer};
use sluice_route::rib::{Origin, Rib};
use tokio::sync::Notify;

pub use kernel::{KernelSettings, listen};
pub use keys::faults as key_faults;
pub(crate) use namespace::within;
use peer::Refusals;
pub use peer::{Peer, PeerRefusal};
use replay::Replay;
pub(crate) use routers::RouteFeeds;
use server::FIRST_MESSAGE;
pub use server::serve;

/// Access to the routes of one router.
pub trait Routes: Send + Sync {
    /// Change the routes and publish the result. Returns `false` if the router has been removed.
    fn change(&self, change: &mut dyn FnMut(&mut Rib)) -> bool;
}

/// Settings of an FPM server.
#[derive(Clone, Debug)]
pub struct FpmSettings {
    /// Name of the router, for log messages.
    pub router: String,
    /// TCP listening address.
    pub listen: Option<SocketAddr>,
    /// Allowed TCP peers.
    pub peers: Vec<IpAddr>,
    /// Files with the TCP-MD5 keys of peers.
    pub md5_key_files: Vec<(IpAddr, PathBuf)>,
    /// Path of the Unix socket.
    pub socket: Option<PathBuf>,
    /// Users allowed on the Unix socket, in addition to root and the process's own user.
    pub users: Vec<String>,
    /// Path of the namespace in which the server listens. `None` means the namespace of the process.
    pub namespace: Option<PathBuf>,
    /// Time for which stale routes are kept after a daemon has disconnected. A reconnected daemon must send its routes
    /// again within this time.
    pub grace: Duration,
    /// Time without data after which the initial replay of a daemon counts as complete.
    pub quiet: Duration,
    /// Number of the routing table from which routes are used.
    pub table: u32,
    /// Interface names or indexes that the daemon uses.
    pub links: Links,
    /// Time at which the engine's clock started.
    pub started_at: Instant,
}

impl FpmSettings {
    /// Default settings: only daemons on this host, two minutes of grace time, five seconds without data until a replay
    /// counts as complete, and the main table.
    pub fn new(router: impl Into<String>, listen: Option<SocketAddr>, links: Links, started_at: Instant) -> Self {
        Self {
            router: router.into(),
            listen,
            peers: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            md5_key_files: Vec::new(),
            socket: None,
            users: Vec::new(),
            namespace: None,
            grace: Duration::from_secs(120),
            quiet: Duration::from_secs(5),
            table: MAIN_TABLE,
            links,
            started_at,
        }
    }
}

/// Counters of a route feed.
#[derive(Debug, Default)]
struct Tally {
    connections: AtomicU64,
    refused: Refusals,
    /// Time of the last log message about a rejected peer. This time limits the rate of messages about rejected peers.
    last_warning: Mutex<Option<Duration>>,
    broken: AtomicU64,
    panics: AtomicU64,
    swept: AtomicU64,
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Status of a route feed.
#[derive(Clone, Debug)]
pub struct FeedStatus {
    /// Listening address. `None` until the socket is open.
    pub listens: Option<String>,
    /// Connected peer.
    pub peer: Option<Peer>,
    /// `absent`, `replaying`, `settled` or `gone`.
    pub state: &'static str,
    /// Time since the peer connected. In state `gone`, the time since the peer disconnected.
    pub since: Option<Duration>,
    /// Time until the removal of routes that the daemon has not sent again.
    pub stale_for: Option<Duration>,
    /// Connections accepted.
    pub connections: u64,
    /// Number of rejected connections, for each reason.
    pub refused: [u64; PeerRefusal::ALL.len()],
    /// Number of connections that were closed because of invalid data.
    pub broken: u64,
    /// Number of panics. Each panic has ended a connection.
    pub panics: u64,
    /// Number of routes that were removed because the daemon did not send them again.
    pub swept: u64,
    /// Counters of received messages.
    pub counts: FeedCounts,
}

/// State shared by a feed's task and its handle.
struct Shared {
    name: String,
    routes: Arc<dyn Routes>,
    origin: Origin,
    started_at: Instant,
    state: Mutex<State>,
    tally: Tally,
    /// Notifies the task that the daemon must send all routes again.
    again: Notify,
    /// Maximum wait for the first message of a connection.
    first_message: Duration,
}

struct State {
    feed: Feed,
    /// Interface names or indexes in the namespace of the socket.
    local_links: Links,
    replay: Replay,
    listens: Option<String>,
    peer: Option<Peer>,
    /// Time at which the peer connected. In state `gone`, the time at which the peer disconnected.
    since: Option<Duration>,
}

/// Minimum interval between log messages about rejected peers.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of routes that are removed without a pause. API requests are served between two parts of the removal.
const SLICE: usize = 2_000;

impl Shared {
    fn new(name: &str, route_peer: RoutePeer, times: (Duration, Duration, Instant), routes: Arc<dyn Routes>) -> Self {
        let (grace, quiet, started_at) = times;
        Self {
            name: name.to_owned(),
            routes,
            origin: route_peer.origin,
            started_at,
            state: Mutex::new(State {
                local_links: route_peer.links.clone(),
                feed: Feed::new(route_peer),
                replay: Replay::new(grace, quiet),
                listens: None,
                peer: None,
                since: None,
            }),
            tally: Tally::default(),
            again: Notify::new(),
            first_message: FIRST_MESSAGE,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Count a rejected peer. At most one rejection is logged per [`WARNING_INTERVAL`].
    fn refuse(&self, peer: &Peer, refusal: PeerRefusal) {
        self.tally.refused.add(refusal);
        let (now, mut last_warning) = (
            self.now(),
            self.tally.last_warning.lock().unwrap_or_else(PoisonError::into_inner),
        );
        if last_warning.is_none_or(|before| now >= before + WARNING_INTERVAL) {
            *last_warning = Some(now);
            tracing::warn!(
                "router {}: the FPM connection from {peer} is refused: {refusal}",
                self.name
            );
        }
    }

    /// Handle a connected peer that starts to send all of its routes.
    fn begin(&self) {
        let (mut state, mut stale) = (self.state(), 0);
        self.routes.change(&mut |rib| {
            state.feed.begin(rib);
            stale = rib.stale(self.origin);
        });
        state.since = Some(self.now());
        state.replay.begin(self.now(), stale);
    }

    /// Process received data. The callback `follow` passes the data to the feed.
    fn receive<R>(&self, mut follow: impl FnMut(&mut Feed, &mut Rib, sluice_route::Time) -> R) -> Option<R> {
        let (mut state, now, mut result) = (self.state(), self.now(), None);
        self.routes.change(&mut |rib| {
            result = Some(follow(&mut state.feed, rib, now.as_nanos() as u64));
        });
        state.replay.receive(now);
        result
    }

    /// Handle a disconnected peer. The peer's routes stay for the grace period.
    fn lose(&self, reason: &str) {
        let (mut state, mut stale) = (self.state(), 0);
        if state.peer.take().is_none() {
            return;
        }
        self.routes.change(&mut |rib| {
            rib.start_replay(self.origin);
            stale = rib.stale(self.origin);
        });
        state.since = Some(self.now());
        state.replay.lose(self.now());
        tracing::warn!(
            "router {}: {reason}; its {stale} routes stay for a grace period",
            self.name
        );
    }

    /// Remove routes that the daemon has not sent again, once their grace period has expired.
    async fn sweep_if_due(&self) {
        let now = self.now();
        {
            let mut state = self.state();
            if state.replay.deadline().is_none_or(|deadline| deadline > now) {
                return;
            }
            let mut stale = 0;
            self.routes.change(&mut |rib| stale = rib.stale(self.origin));
            if !state.replay.is_over(now, stale) {
                return;
            }
        }
        self.sweep().await;
    }

    async fn sweep(&self) {
        let mut all = 0;
        loop {
            let mut swept = 0;
            self.routes
                .change(&mut |rib| swept = rib.end_replay(self.origin, SLICE));
            all += swept;
            count(&self.tally.swept, swept as u64);
            if swept < SLICE {
                break;
            }
            tokio::task::yield_now().await;
        }
        if all > 0 {
            tracing::info!(
                "router {}: {all} routes that the daemon did not send again are removed",
                self.name
            );
        }
    }

    /// Wait until the time at which stale routes may have to be removed.
    async fn deadline(&self) {
        let deadline = self.state().replay.deadline();
        match deadline {
            Some(deadline) => tokio::time::sleep_until((self.started_at + deadline).into()).await,
            None => std::future::pending().await,
        }
    }

    fn status(&self) -> FeedStatus {
        let (state, tally, now) = (self.state(), &self.tally, self.now());
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FeedStatus {
            listens: state.listens.clone(),
            peer: state.peer.clone(),
            state: state.replay.word(),
            since: state.since.map(|since| now.saturating_sub(since)),
            stale_for: state.replay.end().map(|end| end.saturating_sub(now)),
            connections: of(&tally.connections),
            refused: tally.refused.all(),
            broken: of(&tally.broken),
            panics: of(&tally.panics),
            swept: of(&tally.swept),
            counts: state.feed.counts().clone(),
        }
    }
}

/// Handle of a route feed's task. Dropping the handle aborts the task; the routes stay in the RIB.
pub struct RouteFeed {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl RouteFeed {
    /// Status of the feed.
    pub fn status(&self) -> FeedStatus {
        self.shared.status()
    }

    /// Set changed interface indexes. All routes are then requested again, to resolve them with the new indexes.
    pub fn set_links(&self, links: Links) {
        let mut state = self.shared.state();
        if state.local_links == links {
            return;
        }
        // The interface names of a peer on another host do not depend on this host's interfaces.
        if state.feed.peer().links == state.local_links {
            state.feed.set_links(links.clone());
            self.shared.again.notify_one();
        }
        state.local_links = links;
    }
}

impl RouteFeed {
    /// Stop the feed and remove its routes.
    pub(crate) fn forget(&self) {
        let origin = self.shared.origin;
        self.task.abort();
        self.shared.routes.change(&mut |rib| {
            rib.start_replay(origin);
            rib.end_replay(origin, usize::MAX);
        });
    }
}

impl Drop for RouteFeed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Exponential back-off between attempts.
struct Backoff(Duration);

impl Backoff {
    const MIN: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(30);

    fn new() -> Self {
        Self(Self::MIN)
    }

    fn reset(&mut self) {
        self.0 = Self::MIN;
    }

    fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(Self::MAX);
        now
    }
}

/// Run `task` again each time it ends. A panic ends a connection, but not the process.
async fn watched<F>(shared: Arc<Shared>, mut task: impl FnMut(Arc<Shared>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut backoff = Backoff::new();
    loop {
        let mut running = Abort(tokio::spawn(task(shared.clone())));
        if let Err(error) = (&mut running.0).await
            && error.is_panic()
        {
            shared.state().listens = None;
            count(&shared.tally.panics, 1);
            tracing::error!(
                "router {}: receiving routes failed because of a bug and is restarted",
                shared.name
            );
            shared.lose("the connection is closed");
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Aborts a task on drop.
struct Abort(tokio::task::JoinHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
