//! The FPM server of a router: one daemon at a time, by TCP.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sluice_route::feed::fpm::Frames;
use sluice_route::feed::{Links, Teller};
use sluice_route::rib::Origin;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::namespace::within;
use super::{Hearing, Patience, Routes, Settings, Shared, count, watched};

/// Bytes read at a time: some 600 routes, 1 to 2 ms of the control thread.
const READ: usize = 64 * 1024;

/// Serve FPM for a router, from within the runtime that it is to run in.
pub fn serve(settings: Settings, routes: Arc<dyn Routes>) -> Hearing {
    let teller = Teller {
        origin: Origin::Fpm,
        table: settings.table,
        links: settings.links,
    };
    let times = (settings.grace, settings.quiet, settings.began);
    let shared = Arc::new(Shared::new(&settings.router, teller, times, routes));
    let (listen, namespace) = (settings.listen, settings.namespace);
    let task = watched(shared.clone(), move |shared| run(shared, listen, namespace.clone()));
    Hearing {
        shared,
        task: tokio::spawn(task),
    }
}

/// A daemon's connection, and what has come of it.
struct Connection {
    stream: TcpStream,
    frames: Frames,
}

/// Why a connection has ended.
enum End {
    /// The other side did it, or the network.
    Closed(String),
    /// What it sent means nothing.
    Broken(String),
}

async fn run(shared: Arc<Shared>, listen: SocketAddr, namespace: Option<PathBuf>) {
    let listener = bind(&shared, listen, namespace.as_deref()).await;
    let mut connection: Option<Connection> = None;
    let (mut patience, mut not_before) = (Patience::new(), Instant::now());
    loop {
        let accept = async {
            sleep_until(not_before).await;
            listener.accept().await
        };
        let ended = tokio::select! {
            accepted = accept => {
                match accepted {
                    Ok((stream, peer)) if connection.is_none() => connection = Some(begin(&shared, stream, peer)),
                    Ok((_, peer)) => {
                        count(&shared.tally.refused, 1);
                        tracing::warn!("router {}: {peer} is refused: a daemon is connected", shared.name);
                        not_before = Instant::now() + Patience::LEAST;
                    }
                    // No descriptor is left, perhaps.
                    Err(error) => {
                        tracing::warn!("router {}: no connection can be taken: {error}", shared.name);
                        not_before = Instant::now() + patience.next();
                    }
                }
                None
            }
            ended = read(&shared, &mut connection) => ended,
            () = shared.deadline() => {
                shared.sweep_if_due().await;
                None
            }
            () = shared.again.notified(), if connection.is_some() => {
                Some(End::Closed("interfaces have changed, and it is asked for everything anew".into()))
            }
        };
        match ended {
            Some(End::Closed(reason)) => {
                connection = None;
                patience.reset();
                shared.lose(&reason);
            }
            Some(End::Broken(reason)) => {
                connection = None;
                not_before = Instant::now() + patience.next();
                count(&shared.tally.broken, 1);
                shared.lose(&reason);
            }
            None => {}
        }
        // Others have their turn.
        tokio::task::yield_now().await;
    }
}

/// A listening socket in a namespace.
fn listener(listen: SocketAddr, namespace: Option<&Path>) -> io::Result<TcpListener> {
    let listener = within(namespace, || {
        let family = match listen {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = rustix::net::socket_with(
            family,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &listen)?;
        rustix::net::listen(&socket, 8)?;
        Ok(std::net::TcpListener::from(socket))
    })?;
    TcpListener::from_std(listener)
}

/// Listen, however long it takes: the address may be one that the router gets later.
async fn bind(shared: &Shared, listen: SocketAddr, namespace: Option<&Path>) -> TcpListener {
    let mut patience = Patience::new();
    loop {
        match listener(listen, namespace) {
            Ok(listener) => {
                let at = listener.local_addr().ok();
                shared.state().listens = at;
                let at = at.unwrap_or(listen);
                tracing::info!("router {}: listens to FPM at {at}", shared.name);
                return listener;
            }
            Err(error) => {
                tracing::warn!("router {}: can't listen to FPM at {listen}: {error}", shared.name);
                tokio::time::sleep(patience.next()).await;
            }
        }
    }
}

fn begin(shared: &Shared, stream: TcpStream, peer: SocketAddr) -> Connection {
    count(&shared.tally.connections, 1);
    if let Err(error) = keep_alive(&stream) {
        tracing::warn!("router {}: a daemon that vanishes is not noticed: {error}", shared.name);
    }
    {
        let mut state = shared.state();
        // What another host calls its interfaces means nothing here.
        let links = match peer.ip().to_canonical().is_loopback() {
            true => state.here.clone(),
            false => Links::Foreign,
        };
        if state.feed.teller().links != links {
            state.feed.set_links(links);
        }
    }
    shared.begin();
    shared.state().peer = Some(peer);
    tracing::info!("router {}: {peer} tells its routes", shared.name);
    Connection {
        stream,
        frames: Frames::default(),
    }
}

/// A daemon whose host is gone is noticed within half a minute, and another one may come.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Read once and follow what has come whole. Nothing where nobody is connected.
async fn read(shared: &Shared, connection: &mut Option<Connection>) -> Option<End> {
    let Some(connection) = connection else {
        return pending().await;
    };
    let Connection { stream, frames } = connection;
    let read = stream.take(READ as u64).read_buf(frames.room(READ)).await;
    match read {
        Ok(0) if frames.is_cut() => return Some(End::Closed("the daemon is gone in the middle of a message".into())),
        Ok(0) => return Some(End::Closed("the daemon is gone".into())),
        Ok(_) => {}
        Err(error) => return Some(End::Closed(format!("the daemon is gone: {error}"))),
    }
    let followed = shared.hear(|feed, rib, now| {
        while let Some(frame) = frames.take()? {
            feed.follow(rib, frame, now);
        }
        Ok::<_, sluice_route::feed::fpm::FrameError>(())
    });
    match followed {
        Some(Ok(())) => None,
        Some(Err(error)) => Some(End::Broken(format!("what it sends is not understood: {error}"))),
        None => Some(End::Closed("the router is gone".into())),
    }
}
