//! Routes from daemons: an FPM server for each router that asks for one, and a listener to the kernel's table of a
//! namespace. Both offer what they hear to the router's RIB.

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
pub use peer::{Peer, Refusal};
use replay::Replay;
pub(crate) use routers::Hearings;
use server::FIRST_MESSAGE;
pub use server::serve;

/// The routes of one router, wherever they are kept.
pub trait Routes: Send + Sync {
    /// Change them, and hand on what became of that. False where the router is gone.
    fn change(&self, change: &mut dyn FnMut(&mut Rib)) -> bool;
}

/// What an FPM server is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The router's name, for the log.
    pub router: String,
    /// Where it listens by TCP.
    pub listen: Option<SocketAddr>,
    /// Who is heard there.
    pub peers: Vec<IpAddr>,
    /// Files with the keys that some of these sign by.
    pub md5_key_files: Vec<(IpAddr, PathBuf)>,
    /// Where it listens by a Unix socket.
    pub socket: Option<PathBuf>,
    /// Users who are heard there, beside root and the process's own.
    pub users: Vec<String>,
    /// In this namespace, as a file; in the process's own where there is none.
    pub namespace: Option<PathBuf>,
    /// How long routes stay of a daemon that is gone, or does not tell them again.
    pub grace: Duration,
    /// How long a daemon is silent after the last route of a replay.
    pub quiet: Duration,
    /// The routing table whose routes are the router's.
    pub table: u32,
    /// What the daemon calls interfaces.
    pub links: Links,
    /// When the engine's clock began.
    pub began: Instant,
}

impl Settings {
    /// The usual: this host's daemons, two minutes of grace, five seconds of silence, the main table.
    pub fn new(router: impl Into<String>, listen: Option<SocketAddr>, links: Links, began: Instant) -> Self {
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
            began,
        }
    }
}

/// Counters of a server, or a listener.
#[derive(Debug, Default)]
struct Tally {
    connections: AtomicU64,
    refused: Refusals,
    /// When a refusal was logged last: there may be many.
    complained: Mutex<Option<Duration>>,
    broken: AtomicU64,
    panics: AtomicU64,
    swept: AtomicU64,
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// How it stands, for who asks.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Where it listens; nowhere as long as it can't.
    pub listens: Option<String>,
    /// Who is connected.
    pub peer: Option<Peer>,
    /// `absent`, `replaying`, `settled` or `gone`.
    pub state: &'static str,
    /// How long it has been there, or gone.
    pub since: Option<Duration>,
    /// How long what is not told again will stay.
    pub stale_for: Option<Duration>,
    /// Connections that were taken.
    pub connections: u64,
    /// Connections that were refused, by reason.
    pub refused: [u64; Refusal::ALL.len()],
    /// Connections that could not be understood.
    pub broken: u64,
    /// Panics, each of which was the end of a connection.
    pub panics: u64,
    /// Routes taken back because they were not told again.
    pub swept: u64,
    /// What was told.
    pub counts: FeedCounts,
}

/// What a task and who asks about it share.
struct Shared {
    name: String,
    routes: Arc<dyn Routes>,
    origin: Origin,
    began: Instant,
    state: Mutex<State>,
    tally: Tally,
    /// The daemon is to tell everything again.
    again: Notify,
    /// How long the first message of a connection may take.
    first_message: Duration,
}

struct State {
    feed: Feed,
    /// What interfaces are called where the socket is.
    here: Links,
    replay: Replay,
    listens: Option<String>,
    peer: Option<Peer>,
    /// When it came or went.
    since: Option<Duration>,
}

/// Time between two lines of the log about peers that are refused.
const COMPLAINTS: Duration = Duration::from_secs(10);

/// Most routes taken back at a time: in between, the API answers.
const SLICE: usize = 2_000;

impl Shared {
    fn new(name: &str, teller: RoutePeer, times: (Duration, Duration, Instant), routes: Arc<dyn Routes>) -> Self {
        let (grace, quiet, began) = times;
        Self {
            name: name.to_owned(),
            routes,
            origin: teller.origin,
            began,
            state: Mutex::new(State {
                here: teller.links.clone(),
                feed: Feed::new(teller),
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
        self.began.elapsed()
    }

    /// A peer is not heard: it is counted, and the log has one of those of ten seconds.
    fn refuse(&self, peer: &Peer, refusal: Refusal) {
        self.tally.refused.add(refusal);
        let (now, mut complained) = (
            self.now(),
            self.tally.complained.lock().unwrap_or_else(PoisonError::into_inner),
        );
        if complained.is_none_or(|before| now >= before + COMPLAINTS) {
            *complained = Some(now);
            tracing::warn!("router {}: {peer} is refused: {refusal}", self.name);
        }
    }

    /// A teller begins, with all of its routes.
    fn begin(&self) {
        let (mut state, mut stale) = (self.state(), 0);
        self.routes.change(&mut |rib| {
            state.feed.begin(rib);
            stale = rib.stale(self.origin);
        });
        state.since = Some(self.now());
        state.replay.begin(self.now(), stale);
    }

    /// It told something: `follow` gets it to the feed.
    fn hear<R>(&self, mut follow: impl FnMut(&mut Feed, &mut Rib, sluice_route::Time) -> R) -> Option<R> {
        let (mut state, now, mut result) = (self.state(), self.now(), None);
        self.routes.change(&mut |rib| {
            result = Some(follow(&mut state.feed, rib, now.as_nanos() as u64));
        });
        state.replay.hear(now);
        result
    }

    /// It is gone: its routes stay for a while.
    fn lose(&self, reason: &str) {
        let (mut state, mut stale) = (self.state(), 0);
        if state.peer.take().is_none() {
            return;
        }
        self.routes.change(&mut |rib| {
            rib.begin_replay(self.origin);
            stale = rib.stale(self.origin);
        });
        state.since = Some(self.now());
        state.replay.lose(self.now());
        tracing::warn!("router {}: {reason}; its {stale} routes stay for now", self.name);
    }

    /// Take back what was not told again, where it is time for that.
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
            tracing::info!("router {}: {all} routes that were not told again are gone", self.name);
        }
    }

    /// Wait for the time at which stale routes may have to go.
    async fn deadline(&self) {
        let deadline = self.state().replay.deadline();
        match deadline {
            Some(deadline) => tokio::time::sleep_until((self.began + deadline).into()).await,
            None => std::future::pending().await,
        }
    }

    fn standing(&self) -> Standing {
        let (state, tally, now) = (self.state(), &self.tally, self.now());
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Standing {
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

/// A task that hears of routes; it ends when this is dropped. Its routes stay in the RIB.
pub struct Hearing {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Hearing {
    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.shared.standing()
    }

    /// Interfaces have come, gone or got other numbers: everything is told again, by the new ones.
    pub fn set_links(&self, links: Links) {
        let mut state = self.shared.state();
        if state.here == links {
            return;
        }
        // Somebody elsewhere has names of its own for interfaces.
        if state.feed.peer().links == state.here {
            state.feed.set_links(links.clone());
            self.shared.again.notify_one();
        }
        state.here = links;
    }
}

impl Hearing {
    /// Nobody is listened to any more: what was told is taken back.
    pub(crate) fn forget(&self) {
        let origin = self.shared.origin;
        self.task.abort();
        self.shared.routes.change(&mut |rib| {
            rib.begin_replay(origin);
            rib.end_replay(origin, usize::MAX);
        });
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Time between two tries of what did not go well: longer each time.
struct Patience(Duration);

impl Patience {
    const LEAST: Duration = Duration::from_millis(500);
    const MOST: Duration = Duration::from_secs(30);

    fn new() -> Self {
        Self(Self::LEAST)
    }

    fn reset(&mut self) {
        self.0 = Self::LEAST;
    }

    fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(Self::MOST);
        now
    }
}

/// Run `task` again and again, however it ends: a panic is the end of a connection, not of the process.
async fn watched<F>(shared: Arc<Shared>, mut task: impl FnMut(Arc<Shared>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut patience = Patience::new();
    loop {
        let mut running = Abort(tokio::spawn(task(shared.clone())));
        if let Err(error) = (&mut running.0).await
            && error.is_panic()
        {
            shared.state().listens = None;
            count(&shared.tally.panics, 1);
            tracing::error!("router {}: hearing of routes panicked, and begins again", shared.name);
            shared.lose("the connection is ended");
        }
        tokio::time::sleep(patience.next()).await;
    }
}

/// A task that ends with who waits for it.
struct Abort(tokio::task::JoinHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
