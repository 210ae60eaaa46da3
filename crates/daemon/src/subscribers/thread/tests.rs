use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dhcproto::v4::MessageType;
use sluice_engine::packet::punt::{self, ROUTED};
use sluice_nat::sites::{OtherSite, SiteWriter, Sites, Terminal, TerminalsFull, context};
use sluice_wire::{Context, Mac};
use tempfile::TempDir;

use super::*;
use crate::subscribers::Site;
use crate::subscribers::frame::Datagram;
use crate::subscribers::service::Count;
use crate::subscribers::service::tests::{ACCESS, OUTSIDE, TEXT, answered, parameters_of, request_frame};

/// Maximum wait. The limit is longer than any expected delay.
const PATIENCE: Duration = Duration::from_secs(60);

const HEADER: &str =
    "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n";

/// Address of a terminal. The first attempt to map this terminal panics.
const UNLUCKY: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 66);

struct Failing {
    writer: SiteWriter,
    fails: Arc<AtomicBool>,
}

impl Mapping for Failing {
    fn set_site(&mut self, site: u32, mac: Option<Mac>, pool: Option<u16>) -> Result<(), OtherSite> {
        self.writer.set_site(site, mac, pool)
    }

    fn clear_site(&mut self, site: u32) {
        self.writer.clear_site(site);
    }

    fn set_public(&mut self, site: u32, router: u16, address: Option<u32>) -> Result<(), OtherSite> {
        self.writer.set_public(site, router, address)
    }

    fn add_terminal(&mut self, terminal: &Terminal) -> Result<(), TerminalsFull> {
        let unlucky = terminal.address == UNLUCKY.to_bits();
        assert!(
            !(unlucky && self.fails.swap(false, Ordering::Relaxed)),
            "a panic that is meant"
        );
        self.writer.add_terminal(terminal)
    }

    fn remove_terminal(&mut self, context: Context, address: u32) -> bool {
        self.writer.remove_terminal(context, address)
    }
}

/// The service thread, with lease files in a temporary directory and the workers' ends of its queues.
struct World {
    subscribers: Subscribers,
    parameters: Arc<Parameters>,
    entries: Arc<Sites>,
    fails: Arc<AtomicBool>,
    to: PuntSender,
    from: PuntReceiver,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        Self::within(TempDir::new().expect("a folder"))
    }

    fn within(folder: TempDir) -> Self {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let text = TEXT.replace("/kea-leases4.csv", &path("kea-leases4.csv"));
        let text = text.replace("/dhcpd.leases", &path("dhcpd.leases"));
        let text = format!("{text}state = \"{}\"\n", path("public-leases"));
        let parameters = parameters_of(&text);
        let (writer, entries) = SiteWriter::new(9, 100_000, &[(0, 0xcb00_0000, 0xcb00_ffff)], [5, 6]);
        let fails = Arc::new(AtomicBool::new(false));
        let (to, receiver) = punt::queue(punt::QUEUE_BYTES);
        let (sends, from) = punt::queue(punt::QUEUE_BYTES);
        let queues = SubscriberQueues {
            to_subscribers: vec![receiver],
            from_subscribers: Some(sends),
            ..SubscriberQueues::default()
        };
        let mapping = Failing {
            writer,
            fails: fails.clone(),
        };
        Self {
            subscribers: Subscribers::start(parameters.clone(), Box::new(mapping), queues).expect("it runs"),
            parameters,
            entries,
            fails,
            to,
            from,
            folder,
        }
    }

    fn leases(&self) -> PathBuf {
        self.folder.path().join("kea-leases4.csv")
    }

    /// Wait until a condition holds.
    fn until(&self, description: &str, is_so: impl Fn(&Self) -> bool) {
        let started_at = Instant::now();
        while !is_so(self) {
            assert!(started_at.elapsed() < PATIENCE, "{description}");
            std::thread::yield_now();
        }
    }

    fn is_mapped(&self, site: u32, last: u8) -> bool {
        let address = Ipv4Addr::new(10, 0, 1, last).to_bits();
        self.entries.find(context(site, 0, site == 6), address).is_some()
    }

    fn give(&mut self, interface: u16, frame: &[u8]) {
        assert!(self.to.push(interface, [frame, &[]]));
    }

    /// The next frame that the service sends.
    fn take(&mut self) -> (u16, Vec<u8>) {
        let started_at = Instant::now();
        loop {
            if let Some((interface, length)) = self.from.head() {
                let mut frame = vec![0; length];
                self.from.pop(&mut frame);
                return (interface, frame);
            }
            assert!(started_at.elapsed() < PATIENCE, "no frame comes");
            std::thread::yield_now();
        }
    }
}

fn line(last: u8, circuit: &str, begins: u64) -> String {
    let information: String = [1, circuit.len() as u8]
        .into_iter()
        .chain(circuit.bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(
        "10.0.1.{last},02:00:00:00:00:{last:02x},,1000,{},1,0,0,,0,{{ \"ISC\": {{ \"relay-agent-info\": \"0x{information}\" }} }}\n",
        begins + 1_000
    )
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).expect("it is there");
    file.write_all(text.as_bytes()).expect("it is written");
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is after 1970")
        .as_secs()
}

#[test]
fn lease_that_is_written_is_mapped_and_one_that_is_released_is_not() {
    let world = World::new();
    let path = world.leases();
    fs::write(&path, format!("{HEADER}{}", line(1, "shops-8", now()))).expect("it is written");
    world.until("the first lease", |world| world.is_mapped(6, 1));
    let mut times = Vec::new();
    for last in 2..102 {
        let started_at = Instant::now();
        append(&path, &line(last, "shops-8", now()));
        world.until("a lease", |world| world.is_mapped(6, last));
        times.push(started_at.elapsed());
    }
    times.sort_unstable();
    println!(
        "from the file to the workers' entry: half within {:?}, all within {:?}",
        times[50], times[99]
    );
    append(&path, &format!("10.0.1.2,,,0,{},1,0,0,,0,\n", now()));
    world.until("a release", |world| !world.is_mapped(6, 2));
    assert_eq!([100, 0], world.subscribers.with(Service::terminals));
    assert_eq!(100, world.subscribers.status(0).expect("a file").leases);
}

#[test]
fn request_of_a_worker_goes_to_the_server_and_the_answer_back() {
    let mut world = World::new();
    let frame = request_frame(&world.parameters, Site(0), 1, MessageType::Request);
    world.give(ACCESS, &frame);
    let (interface, relayed) = world.take();
    assert_eq!(ACCESS | ROUTED, interface);
    let answer = answered(&relayed, MessageType::Ack, Ipv4Addr::new(10, 0, 1, 5));
    world.give(OUTSIDE, &answer);
    let (interface, returned) = world.take();
    assert_eq!(
        (ACCESS, [0x88, 0xa8, 0, 100]),
        (interface, returned[12..16].try_into().unwrap())
    );
}

#[test]
fn site_whose_lease_comes_asks_for_a_public_address() {
    let mut world = World::new();
    fs::write(world.leases(), format!("{HEADER}{}", line(1, "homes-100.5", now()))).expect("it is written");
    let (interface, frame) = world.take();
    let datagram = Datagram::of(&frame).expect("a datagram");
    assert_eq!(
        (OUTSIDE, world.parameters.mac(Site(0))),
        (interface, datagram.source_mac)
    );
}

#[test]
fn machine_that_panics_is_followed_by_one_that_knows_what_is_so() {
    let world = World::new();
    let path = world.leases();
    fs::write(
        &path,
        format!("{HEADER}{}{}", line(1, "shops-8", now()), line(2, "shops-8", now())),
    )
    .expect("it is written");
    world.until("two leases", |world| world.is_mapped(6, 1) && world.is_mapped(6, 2));
    world.fails.store(true, Ordering::Relaxed);
    append(&path, &line(66, "shops-8", now()));
    world.until("the lease of the panic", |world| world.is_mapped(6, 66));
    world.until("all are known again", |world| {
        world.subscribers.with(Service::terminals) == [3, 0]
    });
    assert_eq!(1, world.subscribers.with(|service| service.counts().of(Count::Panics)));
    // Changes after the restart are applied as before.
    append(&path, &format!("10.0.1.1,,,0,{},1,0,0,,0,\n", now()));
    world.until("a release", |world| !world.is_mapped(6, 1));
}

#[test]
fn lease_file_of_nonsense_costs_nobody_a_lease() {
    let world = World::new();
    let path = world.leases();
    fs::write(&path, format!("{HEADER}{}", line(1, "shops-8", now()))).expect("it is written");
    world.until("a lease", |world| world.is_mapped(6, 1));
    append(&path, "\0\u{fffd},,,\n10.0.1.1,zz,,,,,,,,,\n");
    fs::write(world.folder.path().join("dhcpd.leases"), "lease lease lease { } } {\n").expect("it is written");
    append(&path, &line(2, "shops-8", now()));
    world.until("another lease", |world| world.is_mapped(6, 2));
    world.until("faults", |world| {
        let status = world.subscribers.status(1).expect("a file");
        status.counts.faults.iter().sum::<u64>() > 0
    });
    assert!(world.is_mapped(6, 1));
    assert_eq!(0, world.subscribers.with(|service| service.counts().of(Count::Panics)));
}

#[test]
fn public_lease_outlives_a_restart() {
    let mut world = World::new();
    fs::write(world.leases(), format!("{HEADER}{}", line(1, "homes-100.5", now()))).expect("it is written");
    // The upstream server replies with an offer, then with an acknowledgement.
    for kind in [MessageType::Offer, MessageType::Ack] {
        let (interface, frame) = world.take();
        assert_eq!(OUTSIDE, interface);
        let answer = leased(&frame, kind);
        world.give(OUTSIDE, &answer);
    }
    world.until("an address", |world| world.entries.public(0).is_some());
    let public = world.entries.public(0);
    world.subscribers.stop();
    let World {
        folder, subscribers, ..
    } = world;
    drop(subscribers);
    let world = World::within(folder);
    world.until("the address of before", |world| world.entries.public(0) == public);
}

/// Reply of an upstream server that always leases the same address.
fn leased(question: &[u8], kind: MessageType) -> Vec<u8> {
    use dhcproto::v4::{DhcpOption, Message, Opcode};
    use dhcproto::{Decodable as _, Encodable as _};
    let question = Datagram::of(question).expect("a datagram");
    let mut message = Message::from_bytes(question.payload).expect("a message");
    let identifier = message.opts().get(dhcproto::v4::OptionCode::ClientIdentifier).cloned();
    message
        .set_opcode(Opcode::BootReply)
        .set_yiaddr(Ipv4Addr::new(203, 0, 7, 7));
    let options = message.opts_mut();
    options.clear();
    if let Some(option) = identifier {
        options.insert(option);
    }
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(203, 0, 0, 2)));
    options.insert(DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 0, 0)));
    options.insert(DhcpOption::AddressLeaseTime(3_600));
    let payload = message.to_vec().expect("bytes");
    let datagram = Datagram {
        source_mac: [2, 9, 9, 9, 9, 9],
        destination_mac: question.source_mac,
        source: "203.0.0.2:67".parse().expect("an address"),
        destination: "203.0.7.7:68".parse().expect("an address"),
        payload: &payload,
    };
    datagram.frame().expect("a frame")
}

#[test]
fn sites_in_another_router_are_mapped_there() {
    let world = World::new();
    fs::write(world.leases(), format!("{HEADER}{}", line(1, "shops-8", now()))).expect("it is written");
    world.until("a lease", |world| world.is_mapped(6, 1));
    let mut parameters = (*world.parameters).clone();
    for group in &mut parameters.subscribers.groups {
        group.router = 3;
    }
    world.subscribers.follow(parameters.clone());
    let address = Ipv4Addr::new(10, 0, 1, 1).to_bits();
    world.until("the lease there", |world| {
        world.entries.find(context(6, 3, true), address).is_some()
    });
    assert!(!world.is_mapped(6, 1), "no longer where it was");
    // The sites are unchanged, so no lease ends.
    parameters.interfaces[0].addresses.clear();
    world.subscribers.follow(parameters);
    append(&world.leases(), &line(2, "shops-8", now()));
    world.until("a refusal", |world| {
        world.subscribers.with(Service::terminals) == [1, 1]
    });
    assert!(world.entries.find(context(6, 3, true), address).is_some());
}

#[test]
fn inbox_takes_what_a_host_sends_to_a_relay_of_its_router() {
    let parameters = parameters_of(TEXT);
    let (inbox, receiver) = Inbox::new(&parameters).expect("a descriptor");
    let frame = request_frame(&parameters, Site(8), 1, MessageType::Request);
    let to = |address: &str| {
        let mut datagram = Datagram::of(&frame).expect("a datagram");
        datagram.destination = address.parse().expect("an address");
        datagram.frame().expect("a frame")
    };
    let relayed = to("10.1.255.1:67");
    assert!(inbox.takes(1, &relayed));
    assert_eq!(Ok((1, relayed.clone())), receiver.frames.try_recv());
    for (interface, frame) in [
        (1, to("10.1.255.1:68")),
        (1, to("10.1.0.1:67")),
        (99, relayed),
        (1, vec![]),
    ] {
        assert!(!inbox.takes(interface, &frame), "by {interface}");
    }
    // A full queue to a busy thread does not block the sender.
    for _ in 0..5_000 {
        assert!(inbox.takes(1, &to("10.0.255.1:67")));
    }
    assert_eq!(1_024, receiver.frames.try_iter().count());
}
