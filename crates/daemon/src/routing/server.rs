//! The FPM server of a router. Configured hosts connect by TCP, configured users through a Unix socket.
//!
//! A new connection waits until its first message is complete. The number of waiting connections and the waiting time
//! are limited, so that a peer that sends no data does not block other peers. The server uses the routes of the most
//! recent connection, so that a restarted daemon is accepted even if its previous connection was never closed.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use sluice_route::feed::fpm::{FrameBuffer, FrameError};
use sluice_route::feed::{Links, RoutePeer};
use sluice_route::rib::Origin;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::namespace::within;
use super::peer::{Peer, PeerRefusal};
use super::{Backoff, FpmSettings, RouteFeed, Routes, Shared, count, keys, watched};
use crate::socket::Socket;

/// Number of bytes per read. One read contains about 600 routes, which the control thread processes in 1 to 2 ms.
const READ: usize = 64 * 1024;

/// Maximum number of connections that wait for their first message. Above this maximum, the oldest waiting connection
/// is closed.
const WAITING: usize = 16;

/// Maximum wait for the first message.
pub(super) const FIRST_MESSAGE: Duration = Duration::from_secs(30);

/// Start the FPM server of a router; must be called within the tokio runtime.
pub fn serve(settings: FpmSettings, routes: Arc<dyn Routes>) -> RouteFeed {
    let route_peer = RoutePeer {
        origin: Origin::Fpm,
        table: settings.table,
        links: settings.links.clone(),
    };
    let times = (settings.grace, settings.quiet, settings.started_at);
    let shared = Arc::new(Shared::new(&settings.router, route_peer, times, routes));
    let settings = Arc::new(settings);
    let task = watched(shared.clone(), move |shared| run(shared, settings.clone()));
    RouteFeed {
        shared,
        task: tokio::spawn(task),
    }
}

/// Connection of a routing daemon, and the bytes received on it.
struct Connection {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    peer: Peer,
    frames: FrameBuffer,
}

/// Why a connection has ended.
enum End {
    /// The peer or the network closed the connection.
    Closed(String),
    /// The peer sent invalid data.
    Broken(String),
}

/// Listening sockets.
struct Listeners {
    hosts: Option<TcpListener>,
    users: Option<(UnixListener, Socket)>,
}

/// Connections that wait for their first message.
#[derive(Default)]
struct Waiting {
    tasks: JoinSet<Result<Connection, (Peer, PeerRefusal)>>,
    oldest_first: VecDeque<(AbortHandle, Peer)>,
}

/// Next event of the server.
enum Event {
    Accepted(io::Result<(Box<dyn AsyncRead + Send + Unpin>, Peer)>),
    Introduced(Result<Connection, (Peer, PeerRefusal)>),
    /// The connection in use has received data or has ended.
    Received(Option<End>),
    Due,
    TakeOver,
}

async fn run(shared: Arc<Shared>, settings: Arc<FpmSettings>) {
    let listeners = Listeners::open(&shared, &settings).await;
    let (mut current, mut next): (Option<Connection>, Option<Connection>) = (None, None);
    let mut waiting = Waiting::default();
    let (mut backoff, mut not_before) = (Backoff::new(), Instant::now());
    let (mut takeovers, mut take_over_at) = (Backoff::new(), Instant::now());
    loop {
        let event = tokio::select! {
            accepted = async { sleep_until(not_before).await; listeners.accept().await } => Event::Accepted(accepted),
            introduced = waiting.next() => Event::Introduced(introduced),
            received = read(&shared, &mut current) => Event::Received(received),
            () = shared.deadline() => Event::Due,
            () = shared.again.notified(), if current.is_some() => {
                Event::Received(Some(End::Closed("interfaces have changed, so the daemon must reconnect and send all \
                     routes again".into())))
            }
            () = sleep_until(take_over_at), if next.is_some() => Event::TakeOver,
        };
        let ended = match event {
            Event::Accepted(Ok((stream, peer))) => {
                match settings.accepts(&peer) {
                    true => waiting.add(&shared, stream, peer),
                    false => shared.refuse(&peer, PeerRefusal::NotNamed),
                }
                None
            }
            // The probable cause is that no file descriptor is available.
            Event::Accepted(Err(error)) => {
                tracing::warn!("router {}: no connection can be accepted: {error}", shared.name);
                not_before = Instant::now() + backoff.next();
                None
            }
            Event::Introduced(Ok(connection)) => {
                backoff.reset();
                next = Some(connection);
                None
            }
            Event::Introduced(Err((peer, refusal))) => {
                shared.refuse(&peer, refusal);
                None
            }
            Event::Received(ended) => ended,
            Event::Due => {
                shared.sweep_if_due().await;
                None
            }
            // The delay prevents two daemons that reconnect in turn from replacing each other's routes continuously.
            Event::TakeOver => {
                if Instant::now() > take_over_at + 2 * Backoff::MAX {
                    takeovers.reset();
                }
                take_over_at = Instant::now() + takeovers.next();
                Some(End::Closed("another daemon now sends routes".into()))
            }
        };
        if let Some(end) = ended {
            current = None;
            if let End::Broken(_) = end {
                not_before = Instant::now() + backoff.next();
            }
            lose(&shared, end);
        }
        if current.is_none()
            && let Some(mut connection) = next.take()
        {
            begin(&shared, &connection.peer);
            current = match follow(&shared, &mut connection.frames) {
                None => Some(connection),
                Some(end) => {
                    lose(&shared, end);
                    None
                }
            };
        }
        // Give other tasks of the runtime a chance to run.
        tokio::task::yield_now().await;
    }
}

/// Handle the end of the connection in use.
fn lose(shared: &Shared, end: End) {
    let reason = match end {
        End::Closed(reason) => reason,
        End::Broken(reason) => {
            count(&shared.tally.broken, 1);
            reason
        }
    };
    shared.lose(&reason);
}

impl Listeners {
    /// Open the listening sockets. Retry after a failure, because the router may get the address later.
    async fn open(shared: &Shared, settings: &FpmSettings) -> Self {
        let mut backoff = Backoff::new();
        loop {
            match Self::try_open(settings) {
                Ok(listeners) => {
                    let host = listeners.hosts.as_ref().and_then(|hosts| hosts.local_addr().ok());
                    let host = host.map(|host| host.to_string());
                    let users = settings.socket.as_ref().map(|path| path.display().to_string());
                    let at = [host, users].into_iter().flatten().collect::<Vec<_>>().join(" ");
                    tracing::info!("router {}: listening for FPM at {at}", shared.name);
                    shared.state().listens = Some(at);
                    return listeners;
                }
                Err(error) => {
                    tracing::warn!("router {}: can't listen for FPM: {error}", shared.name);
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    fn try_open(settings: &FpmSettings) -> io::Result<Self> {
        let hosts = settings.listen.map(|listen| listener(listen, settings));
        let users = settings.socket.as_ref().map(|path| {
            let socket = Socket::claim(path).map_err(io::Error::other)?;
            // Any user may connect, since the server checks the peer's user ID.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
            Ok::<_, io::Error>((UnixListener::from_std(socket.listener()?)?, socket))
        });
        Ok(Self {
            hosts: hosts.transpose()?,
            users: users.transpose()?,
        })
    }

    async fn accept(&self) -> io::Result<(Box<dyn AsyncRead + Send + Unpin>, Peer)> {
        let host = async {
            match &self.hosts {
                Some(hosts) => hosts.accept().await,
                None => pending().await,
            }
        };
        let user = async {
            match &self.users {
                Some((users, _)) => users.accept().await,
                None => pending().await,
            }
        };
        tokio::select! {
            accepted = host => {
                let (stream, peer) = accepted?;
                keep_alive(&stream)?;
                Ok((Box::new(stream), Peer::Host(peer)))
            }
            accepted = user => {
                let (stream, _) = accepted?;
                let uid = stream.peer_cred()?.uid();
                Ok((Box::new(stream), Peer::User(uid)))
            }
        }
    }
}

impl Waiting {
    fn add(&mut self, shared: &Shared, stream: Box<dyn AsyncRead + Send + Unpin>, peer: Peer) {
        count(&shared.tally.connections, 1);
        self.oldest_first.retain(|(task, _)| !task.is_finished());
        if self.oldest_first.len() >= WAITING
            && let Some((oldest, peer)) = self.oldest_first.pop_front()
        {
            oldest.abort();
            shared.refuse(&peer, PeerRefusal::Crowded);
        }
        let connection = Connection {
            stream,
            peer: peer.clone(),
            frames: FrameBuffer::default(),
        };
        let task = self.tasks.spawn(introduced(connection, shared.first_message));
        self.oldest_first.push_back((task, peer));
    }

    /// Wait until a new connection has received its first message, or has failed.
    async fn next(&mut self) -> Result<Connection, (Peer, PeerRefusal)> {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(introduced)) => return introduced,
                // The connection was aborted because too many connections were waiting.
                Some(Err(_)) => {}
                None => return pending().await,
            }
        }
    }
}

/// Wait for the first complete message of a connection.
async fn introduced(mut connection: Connection, longest: Duration) -> Result<Connection, (Peer, PeerRefusal)> {
    let Connection { stream, frames, .. } = &mut connection;
    let spoken = timeout(longest, async {
        loop {
            match frames.is_whole() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(_) => return Err(PeerRefusal::NotFpm),
            }
            match stream.take(READ as u64).read_buf(frames.reserve(READ)).await {
                Ok(0) | Err(_) => return Err(PeerRefusal::Silent),
                Ok(_) => {}
            }
        }
    });
    match spoken.await.unwrap_or(Err(PeerRefusal::Silent)) {
        Ok(()) => Ok(connection),
        Err(refusal) => Err((connection.peer, refusal)),
    }
}

/// Create a listening socket in the router's namespace, with the TCP-MD5 keys of its peers.
fn listener(listen: SocketAddr, settings: &FpmSettings) -> io::Result<TcpListener> {
    let listener = within(settings.namespace.as_deref(), || {
        let socket = keys::socket(listen)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        for (peer, path) in &settings.md5_key_files {
            keys::set(&socket, listen, *peer, path).map_err(io::Error::other)?;
        }
        rustix::net::bind(&socket, &listen)?;
        rustix::net::listen(&socket, 64)?;
        Ok(std::net::TcpListener::from(socket))
    })?;
    TcpListener::from_std(listener)
}

fn begin(shared: &Shared, peer: &Peer) {
    {
        let mut state = shared.state();
        // Interface names of another host are not valid on this host.
        let links = match peer.is_local() {
            true => state.local_links.clone(),
            false => Links::Foreign,
        };
        if state.feed.peer().links != links {
            state.feed.set_links(links);
        }
    }
    shared.begin();
    shared.state().peer = Some(peer.clone());
    tracing::info!("router {}: {peer} sends routes", shared.name);
}

/// Enable TCP keepalive. A failure of the daemon's host is then detected within half a minute, and another daemon can
/// connect.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Read once and process complete messages. Without a connection, waits forever.
async fn read(shared: &Shared, connection: &mut Option<Connection>) -> Option<End> {
    let Some(Connection { stream, frames, .. }) = connection else {
        return pending().await;
    };
    let read = stream.take(READ as u64).read_buf(frames.reserve(READ)).await;
    match read {
        Ok(0) if frames.is_cut() => Some(End::Closed("the daemon disconnected in the middle of a message".into())),
        Ok(0) => Some(End::Closed("the daemon disconnected".into())),
        Ok(_) => follow(shared, frames),
        Err(error) => Some(End::Closed(format!("the connection to the daemon failed: {error}"))),
    }
}

/// Process all complete messages.
fn follow(shared: &Shared, frames: &mut FrameBuffer) -> Option<End> {
    let followed = shared.receive(|feed, rib, now| {
        while let Some(frame) = frames.take()? {
            feed.follow(rib, frame, now);
        }
        Ok::<_, FrameError>(())
    });
    match followed {
        Some(Ok(())) => None,
        Some(Err(error)) => Some(End::Broken(format!("a message of the daemon is not valid: {error}"))),
        None => Some(End::Closed("the router is removed".into())),
    }
}
