//! Tests public addresses with Kea. The agent's frames are sent through a TAP interface to the server. Each test runs
//! in a process with its own network namespace.

use sluice_testkit::process;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_daemon::subscribers::Site;
use sluice_daemon::subscribers::agent::store::{Present, Store};
use sluice_daemon::subscribers::agent::{
    Agent, AgentOutput, AgentSettings, Destination, Event, LossReason, State, Transmit,
};
use sluice_daemon::subscribers::frame::Datagram;
use sluice_daemon::subscribers::message::{CLIENT_PORT, SERVER_PORT};
use sluice_daemon::subscribers::virtual_mac::{VirtualMacs, text};
use sluice_dpdk::tap::Tap;
use sluice_nat::Secret;
use sluice_wire::Mac;
use sluice_wire::ethernet::BROADCAST;

const VARIABLE: &str = "SLUICE_PUBLIC_LEASES_INSIDE";
/// Environment variables for the number of sites and the message rate. The variables allow measurements with larger
/// installations.
const SITES: &str = "SLUICE_PUBLIC_LEASES_SITES";
const RATE: &str = "SLUICE_PUBLIC_LEASES_RATE";
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 0, 1);
const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 0xfe];
const LEASE: u64 = 3_600;
const PATIENCE: Duration = Duration::from_secs(120);

/// Run `body` in a separate process.
#[track_caller]
fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(VARIABLE).is_some() {
        return body();
    }
    let mut command = Command::new("unshare");
    command.arg("--net").env(VARIABLE, "1");
    process::again(command, &process::name(test));
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words}: {errors}");
}

/// An unmodified Kea server, which is stopped on drop.
struct Kea {
    folder: tempfile::TempDir,
    process: Child,
}

impl Kea {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let configuration = format!(
            r#"{{"Dhcp4": {{
                "interfaces-config": {{"interfaces": ["wan"], "dhcp-socket-type": "raw"}},
                "lease-database": {{"type": "memfile", "persist": true, "name": "{}", "lfc-interval": 0}},
                "valid-lifetime": {LEASE},
                "subnet4": [{{
                    "subnet": "203.0.0.0/16",
                    "pools": [{{"pool": "203.0.1.0 - 203.0.250.255"}}],
                    "option-data": [{{"name": "routers", "data": "{SERVER}"}}]
                }}],
                "loggers": [{{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{{"output": "stdout"}}]}}]
            }}}}"#,
            path("leases.csv"),
        );
        std::fs::write(path("kea.json"), configuration).expect("a file");
        let mut process = Command::new("kea-dhcp4")
            .args(["-c", &path("kea.json")])
            .env("KEA_PIDFILE_DIR", folder.path())
            .env("KEA_LOCKFILE_DIR", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kea-dhcp4 is installed");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let started = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("DHCP4_STARTED"));
        assert!(
            started,
            "Kea did not start: {configuration}",
            configuration = path("kea.json")
        );
        // Keep reading the server's output, since the server would block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { folder, process }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("leases.csv")
    }

    /// Leases of the server. For each address: the MAC, the lease time in seconds, and the state.
    fn leases(&self) -> BTreeMap<Ipv4Addr, (String, u64, u64)> {
        let text = std::fs::read_to_string(self.file()).expect("a file of leases");
        let lease = |line: &str| {
            let words: Vec<_> = line.split(',').collect();
            let number = |word: &str| word.parse().expect("a number");
            (
                words[0].parse().expect("an address"),
                (words[1].to_owned(), number(words[3]), number(words[9])),
            )
        };
        // If an address has several lines, the last one is valid.
        text.lines().skip(1).map(lease).collect()
    }

    /// Wait until the server's leases satisfy a condition.
    fn until(&self, description: &str, done: impl Fn(&BTreeMap<Ipv4Addr, (String, u64, u64)>) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(&self.leases()) {
            assert!(
                Instant::now() < deadline,
                "waited in vain for {description}: {:?}",
                self.leases()
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Kea {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the agent: transfers its frames and advances its time.
struct Runner {
    agent: Agent,
    tap: Tap,
    started_at: Instant,
    /// Time that was added to the agent's clock.
    skipped: Duration,
    events: Vec<Event>,
    macs: Vec<Mac>,
}

fn settings() -> AgentSettings {
    AgentSettings {
        prefixes: vec!["203.0.0.0/16".parse().expect("a prefix")],
        servers: vec![SERVER],
        rate: from_environment(RATE, 1_000),
        ..AgentSettings::new(Secret([7, 8]))
    }
}

impl Runner {
    fn new(sites: usize) -> Self {
        let tap = Tap::open("wan").expect("this process may make interfaces");
        ip("link set lo up");
        ip(&format!("link set wan address {}", text(SERVER_MAC)));
        ip("link set wan txqueuelen 20000");
        ip(&format!("address add {SERVER}/16 dev wan"));
        ip("link set wan up");
        let names: Vec<_> = (0..sites).map(|site| format!("site-{site}")).collect();
        let named: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
        let macs = VirtualMacs::new(Secret([9, 9]), &[]).expect("no prefix").assign(&named);
        Self {
            agent: Agent::new(settings(), 0),
            tap,
            started_at: Instant::now(),
            skipped: Duration::ZERO,
            events: Vec::new(),
            macs: macs.expect("names that differ"),
        }
    }

    fn now(&self) -> u64 {
        (self.started_at.elapsed() + self.skipped).as_nanos() as u64
    }

    fn present(&self) -> Present {
        let unix = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        let (now, unix) = (self.now(), unix + self.skipped);
        Present {
            now,
            unix: unix.as_secs(),
        }
    }

    fn want_all(&mut self) {
        let now = self.now();
        for (site, mac) in (0..).zip(&self.macs) {
            self.agent.want(Site(site), *mac, now).expect("a site");
        }
    }

    fn send(&self, transmit: &Transmit) {
        let (destination_mac, address) = match transmit.destination {
            Destination::Broadcast => (BROADCAST, Ipv4Addr::BROADCAST),
            Destination::Unicast { address, via } => {
                assert_eq!(SERVER, via, "the only neighbour");
                (SERVER_MAC, address)
            }
        };
        let datagram = Datagram {
            source_mac: transmit.source_mac,
            destination_mac,
            source: SocketAddrV4::new(transmit.source, CLIENT_PORT),
            destination: SocketAddrV4::new(address, SERVER_PORT),
            payload: &transmit.payload,
        };
        self.tap
            .send(&datagram.frame().expect("a short payload"))
            .expect("the interface is up");
    }

    /// Run until the agent satisfies a condition.
    fn until(&mut self, description: &str, done: impl Fn(&Agent, &[Event]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut frame = [0; 2_048];
        loop {
            let mut output = AgentOutput::default();
            let next = self.agent.poll(self.now(), &mut output);
            output.transmits.iter().for_each(|transmit| self.send(transmit));
            self.events.append(&mut output.events);
            if done(&self.agent, &self.events) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "waited in vain for {description}: {:?}",
                self.agent.counters()
            );
            let wait = next.map_or(100_000_000, |next| next.saturating_sub(self.now()).min(100_000_000));
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: wait as _,
            };
            poll(&mut [PollFd::new(&self.tap, PollFlags::IN)], Some(&wait)).expect("poll");
            // Receive some frames, then send due messages.
            for _ in 0..64 {
                let Some(length) = self.tap.receive(&mut frame).expect("the interface is there") else {
                    break;
                };
                if let Some(datagram) = Datagram::of(&frame[..length])
                    && datagram.destination.port() == CLIENT_PORT
                {
                    let now = self.now();
                    self.agent.receive(datagram.payload, datagram.destination_mac, now);
                }
            }
        }
    }

    fn bind_all(&mut self) {
        self.want_all();
        let sites = self.macs.len();
        self.until("all to be bound", |agent, _| agent.leases().count() == sites);
    }

    /// Check that the agent and the server have the same leases.
    fn agree(&self, kea: &Kea) {
        let ours: BTreeMap<_, _> = self
            .agent
            .leases()
            .map(|(_, mac, lease)| (lease.address, text(mac)))
            .collect();
        kea.until("the same leases", |leases| {
            let valid = leases
                .iter()
                .filter(|(_, (_, seconds, state))| *seconds > 0 && *state == 0);
            ours == valid.map(|(address, (mac, _, _))| (*address, mac.clone())).collect()
        });
    }
}

fn sites() -> usize {
    from_environment(SITES, 50)
}

fn from_environment<T: std::str::FromStr>(variable: &str, usual: T) -> T {
    std::env::var(variable).map_or(usual, |text| text.parse().ok().expect("a number"))
}

#[test]
fn sites_get_renew_and_give_back_addresses_of_kea() {
    alone("sites_get_renew_and_give_back_addresses_of_kea", || {
        let mut runner = Runner::new(sites());
        let kea = Kea::start();
        let begin = Instant::now();
        runner.bind_all();
        println!(
            "{} sites were bound in {:?}: {:?}",
            sites(),
            begin.elapsed(),
            runner.agent.counters()
        );
        runner.agree(&kea);
        assert!(
            runner
                .agent
                .leases()
                .all(|(_, _, lease)| lease.server == SERVER && lease.prefix_length == 16)
        );

        runner.skipped += Duration::from_secs(LEASE / 2 + 1);
        let all = sites();
        let begin = Instant::now();
        runner.until("all to be renewed", |_, events| {
            events
                .iter()
                .filter(|event| matches!(event, Event::Renewed(..)))
                .count()
                == all
        });
        println!("{} sites renewed in {:?}", sites(), begin.elapsed());
        runner.agree(&kea);
        let counters = runner.agent.counters();
        assert_eq!(
            (sites() as u64, 0, 0),
            (counters.requests[2], counters.requests[3], counters.refusals)
        );

        // Half of the sites release their leases.
        let gone = sites() / 2;
        let now = runner.now();
        (0..gone as u32).for_each(|site| runner.agent.release(Site(site), now));
        runner.skipped += settings().hold;
        runner.until("half of the sites to go", |agent, _| {
            (0..gone as u32).all(|site| agent.state(Site(site)) == State::Idle)
        });
        assert_eq!(sites() - gone, runner.agent.leases().count());
        runner.agree(&kea);
    });
}

#[test]
fn address_that_somebody_else_uses_is_declined_at_kea() {
    alone("address_that_somebody_else_uses_is_declined_at_kea", || {
        let mut runner = Runner::new(2);
        let kea = Kea::start();
        runner.bind_all();
        let was = runner.agent.lease(Site(1)).expect("a lease").address;
        let now = runner.now();
        runner.agent.conflict(Site(1), now);
        runner.until("the wait after a decline", |agent, _| {
            agent.state(Site(1)) == State::Waiting
        });
        runner.skipped += Duration::from_secs(11);
        runner.until("another address", |agent, _| agent.lease(Site(1)).is_some());
        let address = runner.agent.lease(Site(1)).expect("a lease").address;
        assert!(runner.events.contains(&Event::Lost {
            site: Site(1),
            address: was,
            reason: LossReason::Conflict
        }));
        assert_ne!(was, address);
        // State 1 means "declined". The server does not assign the address for a while.
        kea.until("the address to be declined", |leases| leases[&was].2 == 1);
        runner.agree(&kea);
    });
}

#[test]
fn leases_outlive_a_restart_and_kea_confirms_them() {
    alone("leases_outlive_a_restart_and_kea_confirms_them", || {
        let mut runner = Runner::new(20);
        let kea = Kea::start();
        runner.bind_all();
        let path = kea.folder.path().join("public-leases");
        let (mut store, _) = Store::load(Path::new(&path), runner.present());
        let events = std::mem::take(&mut runner.events);
        events.iter().for_each(|event| store.note(event, runner.now()));
        assert!(store.is_due(runner.present()));
        store
            .write(
                runner.agent.leases().map(|(_, mac, lease)| (mac, lease)),
                runner.present(),
            )
            .expect("it is written");
        let before: Vec<_> = runner
            .agent
            .leases()
            .map(|(site, _, lease)| (site, lease.address))
            .collect();

        let (_, loaded) = Store::load(&path, runner.present());
        assert!(loaded.problem.is_none(), "{:?}", loaded.problem);
        runner.agent = Agent::new(settings(), runner.now());
        runner.agent.restore(loaded.leases);
        runner.want_all();
        runner.until("all to be confirmed", |agent, _| {
            (0..20).all(|site| agent.state(Site(site)) == State::Bound)
        });
        let after: Vec<_> = runner
            .agent
            .leases()
            .map(|(site, _, lease)| (site, lease.address))
            .collect();
        assert_eq!(before, after);
        let counters = runner.agent.counters();
        assert_eq!((0, [0, 20, 0, 0]), (counters.discovers, counters.requests));
        runner.agree(&kea);
    });
}
