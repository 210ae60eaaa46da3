//! Tests of the FPM server against simulated routing daemons.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use sluice_route::feed::netlink::kind;
use sluice_route::feed::writer::{DELETE, SET, Writer, frame};
use sluice_route::rib::{ResolvedSet, Sink};
use sluice_route::{Address, NextHop, Prefix};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Maximum wait for an event that must occur.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Table {
    routes: BTreeMap<Prefix, Vec<(NextHop, u8)>>,
    changes: usize,
}

impl Sink for Table {
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet) {
        self.changes += 1;
        self.routes.insert(prefix, set.members().to_vec());
    }

    fn remove(&mut self, prefix: Prefix) {
        self.changes += 1;
        self.routes.remove(&prefix);
    }
}

struct Router {
    rib: Mutex<(Rib, Table)>,
    /// If set, the next change panics.
    trips: std::sync::atomic::AtomicBool,
}

impl Routes for Router {
    fn change(&self, change: &mut dyn FnMut(&mut Rib)) -> bool {
        assert!(!self.trips.swap(false, Ordering::Relaxed), "as the test wants it");
        let mut both = self.rib.lock().unwrap();
        let (rib, table) = &mut *both;
        change(rib);
        rib.publish(table);
        true
    }
}

struct World {
    router: Arc<Router>,
    route_feed: RouteFeed,
}

async fn until(description: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "waited for {description}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl World {
    async fn new(grace: Duration, quiet: Duration) -> Self {
        Self::with(|settings| FpmSettings {
            grace,
            quiet,
            ..settings
        })
        .await
    }

    async fn with(change: impl FnOnce(FpmSettings) -> FpmSettings) -> Self {
        let router = Arc::new(Router {
            rib: Mutex::new((Rib::new(Default::default(), [1, 2]), Table::default())),
            trips: Default::default(),
        });
        let links = Links::Numbered(BTreeMap::from([(3, 0)]));
        let settings = FpmSettings::new("blue", Some(([127, 0, 0, 1], 0).into()), links, Instant::now());
        let settings = FpmSettings {
            grace: LONG,
            quiet: LONG,
            ..settings
        };
        let route_feed = serve(change(settings), router.clone());
        until("the server to listen", || route_feed.status().listens.is_some()).await;
        Self { router, route_feed }
    }

    async fn connect(&self) -> TcpStream {
        let before = self.route_feed.status().connections;
        let listens = self.route_feed.status().listens.unwrap();
        let stream = TcpStream::connect(listens).await.unwrap();
        until("the connection", || self.route_feed.status().connections > before).await;
        stream
    }

    fn routes(&self) -> Vec<String> {
        let both = self.router.rib.lock().unwrap();
        both.1.routes.keys().map(Prefix::to_string).collect()
    }

    async fn until_routes(&self, expected: &[&str]) {
        until(&format!("{expected:?}"), || self.routes() == expected).await;
    }
}

fn prefix(third: u8) -> Prefix {
    Prefix::new(Address::V4(u32::from_be_bytes([10, 9, third, 0])), 24)
}

fn route(third: u8) -> Vec<u8> {
    let writer = Writer::route((kind::NEW_ROUTE, SET), prefix(third), 186, 1);
    frame(&[writer.address(5, Address::V4(0x0a00_0002)).number(4, 3).finish()])
}

fn gone(third: u8) -> Vec<u8> {
    frame(&[Writer::route((kind::DELETE_ROUTE, DELETE), prefix(third), 186, 0).finish()])
}

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn routes_follow_the_daemon_in_pieces_of_any_size() {
    let world = World::new(LONG, LONG).await;
    let mut daemon = world.connect().await;
    let bytes = [route(1), route(2), route(3), gone(2)].concat();
    for piece in bytes.chunks(11) {
        daemon.write_all(piece).await.unwrap();
        daemon.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    world.until_routes(&["10.9.1.0/24", "10.9.3.0/24"]).await;
    let status = world.route_feed.status();
    assert_eq!((3, 1), (status.counts.offered, status.counts.withdrawn));
    assert_eq!("replaying", status.state);
}

#[tokio::test]
async fn routes_of_a_daemon_that_is_gone_stay_for_the_grace_period_and_go_then() {
    let world = World::new(Duration::from_millis(300), LONG).await;
    let mut daemon = world.connect().await;
    daemon.write_all(&route(1)).await.unwrap();
    world.until_routes(&["10.9.1.0/24"]).await;
    drop(daemon);
    until("the end to be noticed", || world.route_feed.status().peer.is_none()).await;
    assert_eq!(
        ("gone", vec!["10.9.1.0/24".to_owned()]),
        (world.route_feed.status().state, world.routes())
    );
    world.until_routes(&[]).await;
    assert_eq!(1, world.route_feed.status().swept);
}

#[tokio::test]
async fn replay_of_the_same_table_changes_nothing_and_what_it_lacks_goes_with_silence() {
    let world = World::new(LONG, SHORT).await;
    let mut daemon = world.connect().await;
    let all: Vec<u8> = (0..40).flat_map(route).collect();
    daemon.write_all(&all).await.unwrap();
    until("all routes", || world.routes().len() == 40).await;
    until("the replay to be over", || world.route_feed.status().state == "settled").await;
    drop(daemon);
    until("the end to be noticed", || world.route_feed.status().peer.is_none()).await;
    let mut daemon = world.connect().await;
    let again: Vec<u8> = (1..40).flat_map(route).collect();
    daemon.write_all(&again).await.unwrap();
    until("the replay to be over", || world.route_feed.status().state == "settled").await;
    assert_eq!(39, world.routes().len());
    assert_eq!(41, world.router.rib.lock().unwrap().1.changes);
}

#[tokio::test]
async fn daemon_is_heard_beside_connections_that_say_nothing_or_half_a_message() {
    let world = World::new(LONG, LONG).await;
    let mut idle = Vec::new();
    for _ in 0..40 {
        let mut stream = world.connect().await;
        stream.write_all(&route(9)[..7]).await.unwrap();
        idle.push(stream);
    }
    // If too many connections are waiting, the oldest connections are closed.
    until("the oldest to be ended", || refused(&world, PeerRefusal::Crowded) == 24).await;
    let mut daemon = world.connect().await;
    daemon.write_all(&route(1)).await.unwrap();
    world.until_routes(&["10.9.1.0/24"]).await;
    assert_eq!(0, idle[0].read(&mut [0; 1]).await.unwrap_or(0));
}

#[tokio::test]
async fn daemon_that_speaks_last_is_followed_and_the_one_before_is_ended() {
    let world = World::new(LONG, LONG).await;
    let mut first = world.connect().await;
    first.write_all(&route(1)).await.unwrap();
    world.until_routes(&["10.9.1.0/24"]).await;
    let mut second = world.connect().await;
    second.write_all(&route(2)).await.unwrap();
    world.until_routes(&["10.9.1.0/24", "10.9.2.0/24"]).await;
    assert_eq!(0, first.read(&mut [0; 1]).await.unwrap_or(0));
    assert_eq!("replaying", world.route_feed.status().state);
    // The next change of the connection in use is delayed.
    let mut third = world.connect().await;
    third.write_all(&route(3)).await.unwrap();
    second.write_all(&route(4)).await.unwrap();
    world
        .until_routes(&["10.9.1.0/24", "10.9.2.0/24", "10.9.3.0/24", "10.9.4.0/24"])
        .await;
    assert_eq!(0, second.read(&mut [0; 1]).await.unwrap_or(0));
}

fn refused(world: &World, refusal: PeerRefusal) -> u64 {
    world.route_feed.status().refused[refusal as usize]
}

#[tokio::test]
async fn host_that_is_not_named_and_one_that_speaks_otherwise_are_refused() {
    let world = World::with(|settings| FpmSettings {
        peers: vec![[127, 0, 0, 7].into()],
        ..settings
    })
    .await;
    let listens = world.route_feed.status().listens.unwrap();
    let mut stranger = TcpStream::connect(&listens).await.unwrap();
    assert_eq!(0, stranger.read(&mut [0; 1]).await.unwrap_or(0));
    assert_eq!(1, refused(&world, PeerRefusal::NotNamed));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 7], 0).into()).unwrap();
    let mut named = socket.connect(listens.parse().unwrap()).await.unwrap();
    named.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    until("the refusal", || refused(&world, PeerRefusal::NotFpm) == 1).await;
    assert_eq!(1, world.route_feed.status().connections);
}

/// A connection to an address, signed with a TCP-MD5 key or unsigned.
async fn signed(at: SocketAddr, key: Option<&[u8]>) -> std::io::Result<TcpStream> {
    let socket = match at {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    if let Some(key) = key {
        sluice_dpdk::tcp_md5::sign(&socket, at.is_ipv6(), at.ip(), key)?;
    }
    let connect = tokio::time::timeout(Duration::from_millis(500), socket.connect(at));
    connect.await.unwrap_or(Err(ErrorKind::TimedOut.into()))
}

#[tokio::test]
async fn peer_with_a_key_is_heard_by_what_it_signs_and_without_it_or_by_another_key_does_not_connect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, "the key\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for (listen, peer) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
        ("[::]:0", "::1"),
    ] {
        let peer: IpAddr = peer.parse().unwrap();
        let world = World::with(|settings| FpmSettings {
            listen: Some(listen.parse().unwrap()),
            md5_key_files: vec![(peer, path.clone())],
            ..settings
        })
        .await;
        let port = world
            .route_feed
            .status()
            .listens
            .unwrap()
            .parse::<SocketAddr>()
            .unwrap()
            .port();
        let at = SocketAddr::new(peer, port);
        for key in [None, Some(&b"another key"[..])] {
            let refused = signed(at, key).await.map_err(|error| error.kind());
            assert_eq!(Some(ErrorKind::TimedOut), refused.err(), "{listen} {key:?}");
        }
        assert_eq!(0, world.route_feed.status().connections);
        let mut daemon = signed(at, Some(b"the key")).await.unwrap();
        daemon.write_all(&route(1)).await.unwrap();
        world.until_routes(&["10.9.1.0/24"]).await;
    }
}

#[tokio::test]
async fn daemon_is_heard_by_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fpm");
    let world = World::with(|settings| FpmSettings {
        listen: None,
        socket: Some(path.clone()),
        ..settings
    })
    .await;
    let mut daemon = tokio::net::UnixStream::connect(&path).await.unwrap();
    daemon.write_all(&route(1)).await.unwrap();
    world.until_routes(&["10.9.1.0/24"]).await;
    let peer = world.route_feed.status().peer;
    assert_eq!(Some(Peer::User(rustix::process::geteuid().as_raw())), peer);
}

#[tokio::test]
async fn connection_that_is_not_understood_is_ended_and_counted_and_another_one_taken() {
    let world = World::new(LONG, LONG).await;
    let mut daemon = world.connect().await;
    daemon
        .write_all(&[&*route(1), b"GET / HTTP/1.1\r\n\r\n"].concat())
        .await
        .unwrap();
    let end = daemon.read(&mut [0; 1]).await;
    assert!(
        end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) || world.route_feed.status().peer.is_none()
    );
    assert_eq!(1, world.route_feed.status().broken);
    // Existing routes stay, as after a disconnect of the daemon.
    world.until_routes(&["10.9.1.0/24"]).await;
    let mut daemon = world.connect().await;
    daemon.write_all(&route(2)).await.unwrap();
    world.until_routes(&["10.9.1.0/24", "10.9.2.0/24"]).await;
}

#[tokio::test]
async fn panic_ends_the_connection_and_the_next_one_is_served() {
    let world = World::new(LONG, LONG).await;
    let mut daemon = world.connect().await;
    daemon.write_all(&route(1)).await.unwrap();
    world.until_routes(&["10.9.1.0/24"]).await;
    world.router.trips.store(true, Ordering::Relaxed);
    daemon.write_all(&route(2)).await.unwrap();
    until("the panic", || world.route_feed.status().panics == 1).await;
    until("the server to listen again", || {
        world.route_feed.status().listens.is_some()
    })
    .await;
    let mut daemon = world.connect().await;
    daemon.write_all(&route(3)).await.unwrap();
    world.until_routes(&["10.9.1.0/24", "10.9.3.0/24"]).await;
}

#[tokio::test]
async fn interfaces_that_change_make_the_daemon_tell_everything_again() {
    let world = World::new(LONG, LONG).await;
    let mut daemon = world.connect().await;
    daemon.write_all(&route(1)).await.unwrap();
    world.until_routes(&["10.9.1.0/24"]).await;
    world.route_feed.set_links(Links::Numbered(BTreeMap::from([(3, 7)])));
    assert_eq!(0, daemon.read(&mut [0; 1]).await.unwrap_or(0));
    let mut daemon = world.connect().await;
    daemon.write_all(&route(1)).await.unwrap();
    until("the other interface", || {
        let both = world.router.rib.lock().unwrap();
        both.1.routes[&prefix(1)][0].0.interface() == Some(7)
    })
    .await;
}
