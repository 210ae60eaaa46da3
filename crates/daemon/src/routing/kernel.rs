//! Route feed from the kernel's routing table in a namespace. The table contains the routes of BIRD and of `ip route`.

use std::io;
use std::os::unix::net::UnixDatagram as Socket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sluice_route::feed::netlink::{INET, INET6, kind};
use sluice_route::feed::writer::{LIST, Writer};
use sluice_route::feed::{DumpResult, Links, MAIN_TABLE, RoutePeer};
use sluice_route::rib::Origin;
use tokio::net::UnixDatagram;

use super::namespace::within;
use super::{Backoff, RouteFeed, Routes, Shared, count, watched};

/// Settings of a listener for the kernel's routes.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// Name of the router, for log messages.
    pub router: String,
    /// Path of the namespace, `/run/netns/NAME`. `None` means the namespace of the process.
    pub namespace: Option<PathBuf>,
    /// Interface indexes in the namespace.
    pub links: Links,
    /// Time at which the engine's clock started.
    pub started_at: Instant,
}

/// Multicast groups as bits: RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE and RTNLGRP_NEXTHOP. RTNLGRP_LINK,
/// RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV6_IFADDR are included because the kernel removes routes together with links and
/// addresses without a notification.
const GROUPS: u32 = 1 << (7 - 1) | 1 << (11 - 1) | 1 << (32 - 1) | 1 | 1 << (5 - 1) | 1 << (9 - 1);

/// Size of the receive buffer for notifications while the control thread is busy. The buffer holds about 100,000
/// routes.
const BUFFER: usize = 32 << 20;

/// Maximum length of a message. Messages of a dump are the longest.
const LONGEST: usize = 32 * 1024;

/// Number of messages that are read before the changed routes are published.
const READS: usize = 16;

/// Start a listener for the kernel's routing table. Must be called within the tokio runtime.
pub fn listen(settings: KernelSettings, routes: Arc<dyn Routes>) -> RouteFeed {
    let route_peer = RoutePeer {
        origin: Origin::Kernel,
        table: MAIN_TABLE,
        links: settings.links,
    };
    let times = (Duration::ZERO, Duration::ZERO, settings.started_at);
    let shared = Arc::new(Shared::new(&settings.router, route_peer, times, routes));
    let namespace = settings.namespace;
    let task = watched(shared.clone(), move |shared| run(shared, namespace.clone()));
    RouteFeed {
        shared,
        task: tokio::spawn(task),
    }
}

/// A socket that receives the route notifications of a namespace. A netlink socket transfers datagrams, so the type
/// `UnixDatagram` is used although netlink is not a Unix socket.
fn open(namespace: Option<&Path>) -> io::Result<Socket> {
    let socket = || -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        // With privileges, the buffer may exceed the system's limit.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        }
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(socket.into())
    };
    within(namespace, socket)
}

/// Dumps to request, in this order. Each dump must complete before the next dump is requested.
const LISTINGS: [(u16, u8, usize); 3] = [
    (kind::GET_NEXT_HOP, 0, 8),
    (kind::GET_ROUTE, INET, 12),
    (kind::GET_ROUTE, INET6, 12),
];

async fn ask(socket: &UnixDatagram, listing: usize) -> io::Result<()> {
    let Some(&(kind, family, length)) = LISTINGS.get(listing) else {
        return Ok(());
    };
    let mut fixed = vec![0; length];
    fixed[0] = family;
    let message = Writer::new(kind, LIST, &fixed).finish();
    socket.send(&message).await.map(|_| ())
}

/// Why a socket can no longer be used.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("messages from the kernel were lost, so all routes are read again")]
    Missed,
    #[error("the router is removed")]
    NoRouter,
    #[error("{0}")]
    System(#[from] io::Error),
}

async fn run(shared: Arc<Shared>, namespace: Option<PathBuf>) {
    let mut backoff = Backoff::new();
    loop {
        let end = match open(namespace.as_deref()).and_then(UnixDatagram::from_std) {
            Ok(socket) => {
                count(&shared.tally.connections, 1);
                receive(&shared, &socket, &mut backoff).await
            }
            Err(error) => error.into(),
        };
        if let End::Missed = end {
            count(&shared.tally.broken, 1);
        }
        let place = namespace.as_deref().unwrap_or(Path::new("the process's namespace"));
        tracing::warn!(
            "router {}: reading the routes of {} ended: {end}",
            shared.name,
            place.display()
        );
        tokio::time::sleep(backoff.next()).await;
    }
}

/// State of the dump of all tables.
struct Listing {
    /// Index in [`LISTINGS`] of the current dump. If all dumps are complete, the index equals the number of listings.
    next: usize,
    /// Whether a change requires another dump.
    is_outdated: bool,
    /// Time at which the last dump must be repeated.
    again: Option<Instant>,
}

/// Dump all tables, then process notifications. After a lost notification, the socket and its queue are discarded.
async fn receive(shared: &Shared, socket: &UnixDatagram, backoff: &mut Backoff) -> End {
    let mut buffer = vec![0; LONGEST];
    let mut listing = Listing {
        next: LISTINGS.len(),
        is_outdated: true,
        again: None,
    };
    loop {
        if let Err(end) = receive_changes(shared, socket, &mut listing, backoff).await {
            return end;
        }
        tokio::select! {
            ready = socket.readable() => if let Err(error) = ready { return error.into() },
            () = shared.again.notified() => listing.is_outdated = true,
            () = at(listing.again) => {
                listing.again = None;
                listing.is_outdated = true;
            }
        }
        let read = shared.receive(|feed, rib, now| {
            let read = (0..READS).try_for_each(|_| {
                let length = socket.try_recv(&mut buffer)?;
                feed.follow(rib, buffer.get(..length).unwrap_or_default(), now);
                Ok::<_, io::Error>(())
            });
            feed.settle(rib, now);
            read
        });
        match read {
            Some(Err(error)) => match (error.kind(), Errno::from_io_error(&error)) {
                (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _) => {}
                (_, Some(Errno::NOBUFS)) => return End::Missed,
                _ => return error.into(),
            },
            Some(Ok(())) => tokio::task::yield_now().await,
            None => return End::NoRouter,
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Request the next dump. If a change occurs during a dump, the dump is repeated afterwards.
async fn receive_changes(
    shared: &Shared,
    socket: &UnixDatagram,
    listing: &mut Listing,
    backoff: &mut Backoff,
) -> Result<(), End> {
    let listed = {
        let feed = &mut shared.state().feed;
        if feed.take_resync_needed() && !listing.is_outdated {
            tracing::debug!("router {}: all kernel routes are read again", shared.name);
            listing.is_outdated = true;
        }
        feed.take_dump_result()
    };
    match listed {
        Some(DumpResult::Incomplete) if listing.next < LISTINGS.len() => return Err(End::Missed),
        Some(DumpResult::Complete) if listing.next < LISTINGS.len() => {
            listing.next += 1;
            if listing.next == LISTINGS.len() {
                let is_current = shared.state().feed.end_dump();
                shared.sweep().await;
                shared.state().replay.settle();
                match is_current {
                    true => backoff.reset(),
                    false => listing.again = Some(Instant::now() + backoff.next()),
                }
            } else {
                ask(socket, listing.next).await?;
            }
        }
        _ => {}
    }
    if listing.is_outdated && listing.next == LISTINGS.len() {
        *listing = Listing {
            next: 0,
            is_outdated: false,
            again: None,
        };
        shared.begin();
        ask(socket, 0).await?;
    }
    Ok(())
}
