//! Tests private leases with real DHCP servers. Terminals send requests through the relay, and a watcher reads the
//! server's lease file. Each test runs in a process with its own network namespace and its own /run.

use sluice_testkit::process;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dhcproto::v4::{Decodable, Decoder, DhcpOption, Encodable, Encoder, Message, MessageType, OptionCode};
use sluice_daemon::subscribers::Site;
use sluice_daemon::subscribers::leases::{Change, Format, Lease, Lost, Watcher, WatcherSettings, WatcherStatus};
use sluice_daemon::subscribers::relay::{Home, Limits, Origin, Rates, Relay};
use sluice_table::token_bucket::TokenRate;
use tempfile::TempDir;

const VARIABLE: &str = "SLUICE_LEASES_INSIDE";
const PATIENCE: Duration = Duration::from_secs(30);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// Run `body` in a separate process.
#[track_caller]
fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(VARIABLE).is_some() {
        return body();
    }
    let script = "mount -t tmpfs none /run && mkdir /run/netns && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "sh", "-c", script, "sh"])
        .env(VARIABLE, "1");
    process::again(command, &process::name(test));
}

fn run(words: &str) -> String {
    let mut parts = words.split(' ');
    let output = Command::new(parts.next().expect("a program")).args(parts).output();
    let output = output.expect("it runs");
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// A DHCP server in its own namespace, connected by a veth pair. The server is stopped on drop.
struct Server {
    folder: TempDir,
    format: Format,
    child: Child,
}

const KEA: &str = r#"{ "Dhcp4": {
    "interfaces-config": { "interfaces": [ "inside" ], "dhcp-socket-type": "udp" },
    "lease-database": { "type": "memfile", "persist": true, "name": "FOLDER/leases", "lfc-interval": 1 },
    "store-extended-info": true,
    "valid-lifetime": 600,
    "subnet4": [ { "id": 1, "subnet": "10.77.0.0/16", "pools": [ { "pool": "10.77.1.0-10.77.1.250" } ] } ]
} }"#;

const DHCPD: &str = "authoritative; ping-check false; dhcp-cache-threshold 0; default-lease-time 600;
    subnet 10.77.0.0 netmask 255.255.0.0 { range 10.77.1.0 10.77.1.250; }";

impl Server {
    fn start(format: Format) -> Self {
        for words in [
            "ip netns add far",
            "ip link add relay type veth peer name inside netns far",
            "ip addr add 10.77.0.2/16 dev relay",
            "ip -n far addr add 10.77.0.1/16 dev inside",
            "ip link set relay up",
            "ip -n far link set inside up",
            // dhcpd verifies checksums, which the kernel would leave to the card.
            "ethtool -K relay tx off",
        ] {
            run(words);
        }
        // Kea ignores an interface that has no carrier when Kea starts.
        let started_at = Instant::now();
        while !run("ip -n far link show inside").contains("state UP") {
            assert!(started_at.elapsed() < PATIENCE, "there is no carrier");
            std::thread::yield_now();
        }
        let folder = TempDir::new().expect("a folder");
        let configuration = match format {
            Format::Kea => KEA,
            Format::Dhcpd => {
                std::fs::write(folder.path().join("leases"), "").expect("it is written");
                DHCPD
            }
        };
        let text = configuration.replace("FOLDER", folder.path().to_str().expect("text"));
        std::fs::write(folder.path().join("configuration"), text).expect("it is written");
        let child = spawn(folder.path(), format);
        Self { folder, format, child }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("leases")
    }

    fn restart(&mut self) {
        self.end();
        self.child = spawn(self.folder.path(), self.format);
    }

    fn end(&mut self) {
        self.child.kill().expect("it ends");
        self.child.wait().expect("it has ended");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(folder: &Path, format: Format) -> Child {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "far"]);
    match format {
        Format::Kea => command.args(["kea-dhcp4", "-c"]).arg(folder.join("configuration")),
        Format::Dhcpd => command
            .args([
                "dhcpd", "-4", "-f", "-q", "--no-pid", "-user", "root", "-group", "root", "-cf",
            ])
            .arg(folder.join("configuration"))
            .arg("-lf")
            .arg(folder.join("leases"))
            .arg("inside"),
    };
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    let places = quiet.env("KEA_PIDFILE_DIR", folder).env("KEA_LOCKFILE_DIR", folder);
    places.spawn().expect("the server runs")
}

/// Terminals of sites, the relay, and a watcher of the lease file.
struct World {
    relay: Relay,
    socket: UdpSocket,
    watcher: Watcher,
    changes: Receiver<Vec<Change>>,
    /// Leases reconstructed from the changes.
    known: BTreeMap<Ipv4Addr, Lease>,
    lost: Vec<(Ipv4Addr, Lost)>,
}

fn circuit(site: Site) -> String {
    format!("S100.C{}", site.0)
}

fn home(circuit: &[u8]) -> Option<Home> {
    let number = std::str::from_utf8(circuit).ok()?.strip_prefix("S100.C")?;
    let (site, gateway) = (Site(number.parse().ok()?), RELAY);
    Some(Home { site, gateway })
}

impl World {
    fn new(server: &Server) -> Self {
        let rate = TokenRate::new(1000, 1000);
        let rates = Rates {
            terminal: rate,
            site: rate,
        };
        let (hand, changes) = channel();
        let settings = WatcherSettings {
            path: server.file(),
            format: server.format,
            limit: 1000,
        };
        let socket = UdpSocket::bind((RELAY, 67)).expect("a relay's port");
        socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("it waits");
        Self {
            relay: Relay::new(Limits::default(), rates, 64, 64),
            socket,
            watcher: Watcher::start(settings, move |changes| drop(hand.send(changes))).expect("it runs"),
            changes,
            known: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// Send a message through the relay. If a reply is expected, waits for the reply. Returns the reply and the lease
    /// that the relay has observed in the reply.
    fn say(&mut self, site: Site, message: &Message, answered: bool) -> Option<(Message, Option<Ipv4Addr>)> {
        let (mut payload, mut out, mut back) = (Vec::new(), Vec::new(), Vec::new());
        message
            .encode(&mut Encoder::new(&mut payload))
            .expect("it can be written");
        let circuit = circuit(site);
        let origin = Origin {
            site,
            gateway: RELAY,
            circuit: circuit.as_bytes(),
            remote: b"sluice",
            link: None,
            trusted: false,
        };
        let started_at = Instant::now();
        while started_at.elapsed() < PATIENCE {
            self.relay
                .request(&payload, &origin, 0, &mut out)
                .expect("it is relayed");
            let server = SocketAddr::from((SERVER, 67));
            self.socket.send_to(&out, server).expect("it is sent");
            if !answered {
                return None;
            }
            let mut buffer = [0; 2000];
            while let Ok(length) = self.socket.recv(&mut buffer) {
                let acknowledged = self
                    .relay
                    .reply(&buffer[..length], home, 0, &mut back)
                    .expect("it is relayed");
                let answer = Message::decode(&mut Decoder::new(&back)).expect("it can be read");
                // The reply may belong to an earlier message with the same transaction ID.
                if answer.xid() == message.xid() && answer.opts().msg_type() != Some(MessageType::Offer)
                    || message.opts().msg_type() == Some(MessageType::Discover)
                {
                    assert_eq!(site, acknowledged.site);
                    assert_eq!(None, answer.opts().get(OptionCode::RelayAgentInformation));
                    return Some((answer, acknowledged.lease.map(|(address, _)| address)));
                }
            }
        }
        panic!("no answer to {message:?}");
    }

    fn message(terminal: u8, kind: MessageType, own: Ipv4Addr) -> Message {
        let hardware = [2, 0, 0, 0, 0, terminal];
        let mut message = Message::new_with_id(u32::from(terminal), own, NONE, NONE, NONE, &hardware);
        message.opts_mut().insert(DhcpOption::MessageType(kind));
        message
    }

    /// Acquire a lease for a terminal. Returns once the server has written the lease to its file.
    fn lease(&mut self, site: Site, terminal: u8) -> Ipv4Addr {
        let discover = Self::message(terminal, MessageType::Discover, NONE);
        let (offer, _) = self.say(site, &discover, true).expect("an offer");
        let mut request = Self::message(terminal, MessageType::Request, NONE);
        request.set_xid(u32::from(terminal) + 1000);
        request
            .opts_mut()
            .insert(DhcpOption::RequestedIpAddress(offer.yiaddr()));
        request.opts_mut().insert(DhcpOption::ServerIdentifier(SERVER));
        let (_, lease) = self.say(site, &request, true).expect("an answer");
        let address = lease.expect("the relay has seen the lease");
        let started_at = Instant::now();
        let circuit = circuit(site);
        self.until(|known, _| {
            let lease = known.get(&address);
            let relay = lease.and_then(|lease| lease.relay.as_deref());
            relay.is_some_and(|relay| *relay.circuit == *circuit.as_bytes() && *relay.remote == *b"sluice")
        });
        println!(
            "the lease of {address} is known {:?} after its answer",
            started_at.elapsed()
        );
        assert_eq!([2, 0, 0, 0, 0, terminal], self.known[&address].hardware);
        address
    }

    fn release(&mut self, site: Site, terminal: u8, address: Ipv4Addr) {
        let mut release = Self::message(terminal, MessageType::Release, address);
        release.opts_mut().insert(DhcpOption::ServerIdentifier(SERVER));
        assert!(self.say(site, &release, false).is_none());
        self.until(|known, _| !known.contains_key(&address));
        assert_eq!(vec![(address, Lost::Released)], std::mem::take(&mut self.lost));
    }

    /// Receive changes until a condition holds.
    fn until(&mut self, is_so: impl Fn(&BTreeMap<Ipv4Addr, Lease>, &WatcherStatus) -> bool) {
        let started_at = Instant::now();
        while !is_so(&self.known, &self.watcher.status()) {
            assert!(
                started_at.elapsed() < PATIENCE,
                "{:?} {:?}",
                self.known,
                self.watcher.status()
            );
            for change in self.changes.recv_timeout(Duration::from_millis(5)).unwrap_or_default() {
                match change {
                    Change::Gained(lease) | Change::Changed { now: lease, .. } | Change::Renewed(lease) => {
                        self.known.insert(lease.address, (*lease).clone());
                    }
                    Change::Lost { was, why } => {
                        self.known.remove(&was.address);
                        self.lost.push((was.address, why));
                    }
                }
            }
        }
    }

    fn no_faults(&self) {
        let counts = self.watcher.status().counts;
        assert!(counts.faults.iter().all(|&count| count == 0), "{counts:?}");
    }
}

/// Two sites acquire leases, one terminal releases its lease, and another terminal moves to the other site.
fn exchange(world: &mut World) -> Ipv4Addr {
    let (one, two) = (Site(1), Site(2));
    let first = world.lease(one, 1);
    let second = world.lease(two, 2);
    let third = world.lease(two, 3);
    assert_eq!(3, world.known.len());
    world.release(two, 2, second);
    assert_eq!(first, world.lease(two, 1), "it moves");
    world.no_faults();
    third
}

#[test]
fn kea_leases_are_known_through_its_clean_up_and_a_restart() {
    alone("kea_leases_are_known_through_its_clean_up_and_a_restart", || {
        let mut server = Server::start(Format::Kea);
        let mut world = World::new(&server);
        exchange(&mut world);
        let before = world.watcher.status().counts;
        let passed = move |status: &WatcherStatus| {
            let counts = &status.counts;
            counts.rotations + counts.readings >= before.rotations + before.readings + 2
        };
        world.until(|_, status| passed(status));
        world.lease(Site(3), 4);
        server.restart();
        world.lease(Site(3), 5);
        assert_eq!((4, 0), (world.known.len(), world.lost.len()));
        world.no_faults();
    });
}

#[test]
fn dhcpd_leases_are_known_through_a_restart_that_writes_them_anew() {
    alone("dhcpd_leases_are_known_through_a_restart_that_writes_them_anew", || {
        let mut server = Server::start(Format::Dhcpd);
        let mut world = World::new(&server);
        let third = exchange(&mut world);
        let readings = world.watcher.status().counts.readings;
        server.restart();
        world.until(|_, status| status.counts.readings > readings);
        world.lease(Site(3), 4);
        world.release(Site(2), 3, third);
        assert_eq!((2, 0), (world.known.len(), world.lost.len()));
        world.no_faults();
    });
}
