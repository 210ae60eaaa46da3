//! Tests host stacks of routers with the real kernel: namespaces, interfaces and frames. Each test runs in a process
//! with its own network namespace and its own /run.

use sluice_testkit::process;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluice_daemon::host::{HostInterface, HostQueues, HostRouter, Hosts};
use sluice_daemon::subscribers::frame::Datagram;
use sluice_engine::packet::punt::{PuntReceiver, PuntSender, queue};
use sluice_testkit::packet::{self, IpNumber, Transport, flag};
use sluice_wire::ethernet::multicast4;
use sluice_wire::layers;

const VARIABLE: &str = "SLUICE_HOSTS_INSIDE";
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 10];

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

fn until<R>(description: &str, mut done: impl FnMut() -> Option<R>) -> R {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(result) = done() {
            return result;
        }
        assert!(Instant::now() < deadline, "waited in vain for {description}");
        std::thread::yield_now();
    }
}

fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip runs");
    assert!(
        output.status.success(),
        "ip {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn exists(name: &str) -> bool {
    std::path::Path::new("/run/netns").join(name).exists()
}

/// Run a function in a namespace, on a separate thread.
fn within<R: Send + 'static>(name: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let file = std::fs::File::open(format!("/run/netns/{name}")).expect("the namespace is there");
    let thread = std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("it can be entered");
        work()
    });
    thread.join().expect("it ends")
}

/// The workers' ends of the queues.
struct Workers {
    to_hosts: Vec<PuntSender>,
    from_hosts: PuntReceiver,
}

impl Workers {
    fn new() -> (Self, HostQueues) {
        let (first, taken) = queue(1 << 16);
        let (second, also) = queue(1 << 16);
        let (giver, from_hosts) = queue(1 << 16);
        let workers = Self {
            to_hosts: vec![first, second],
            from_hosts,
        };
        let queues = HostQueues {
            to_hosts: vec![taken, also],
            from_hosts: Some(giver),
        };
        (workers, queues)
    }

    /// The next frame from a host stack that satisfies a condition.
    fn sent(&mut self, wanted: impl Fn(u16, &[u8]) -> bool) -> Vec<u8> {
        until("a frame of a host", || {
            let (interface, length) = self.from_hosts.head()?;
            let mut frame = vec![0; length];
            self.from_hosts.pop(&mut frame);
            wanted(interface, &frame).then_some(frame)
        })
    }
}

fn interface(index: u16, name: &str, addresses: &[&str]) -> HostInterface {
    let parse = |text: &&str| {
        let (address, length) = text.split_once('/').expect("a length");
        (address.parse().expect("an address"), length.parse().expect("a number"))
    };
    HostInterface {
        index,
        name: name.into(),
        mac: MAC,
        mtu: 1400,
        addresses: addresses.iter().map(parse).collect(),
    }
}

fn router(name: &str, interfaces: Vec<HostInterface>) -> HostRouter {
    HostRouter {
        name: name.into(),
        interfaces,
        uplinks: [Some(3), Some(3)],
    }
}

fn red() -> HostRouter {
    let addresses = ["192.168.1.1/24", "2001:db8:1::1/64", "fe80::ff:fe00:101/64"];
    router("red", vec![interface(3, "inside", &addresses)])
}

fn start(routers: Vec<HostRouter>) -> (Hosts, Workers) {
    let (workers, queues) = Workers::new();
    (Hosts::start(routers, queues).expect("hosts start"), workers)
}

fn addresses(name: &str, link: &str) -> Vec<String> {
    let text = ip(&format!("-n {name} -o address show dev {link}"));
    let mut found: Vec<_> = text
        .lines()
        .filter_map(|line| Some(line.split_whitespace().nth(3)?.to_owned()))
        .collect();
    found.sort();
    found
}

fn has_carrier(name: &str, link: &str) -> bool {
    ip(&format!("-n {name} -o link show dev {link}")).contains("LOWER_UP")
}

#[test]
fn server_in_a_host_hears_the_relay_and_its_answer_comes_back() {
    alone("server_in_a_host_hears_the_relay_and_its_answer_comes_back", || {
        let (hosts, mut workers) = start(vec![red()]);
        let (relay, server) = ("192.168.1.2:67", "192.168.1.1:67");
        let address = |text: &str| text.parse::<SocketAddrV4>().expect("an address");
        let (taken, answers) = std::sync::mpsc::channel();
        hosts.divert(Box::new(move |interface, frame| {
            let meant = Datagram::of(frame).is_some_and(|datagram| datagram.destination == address(relay));
            meant && taken.send((interface, frame.to_vec())).is_ok()
        }));
        let socket = within("sluice-red", move || {
            let socket = UdpSocket::bind(server).expect("an address of its own");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
            socket
        });
        let question = |source| Datagram {
            source_mac: PEER_MAC,
            destination_mac: MAC,
            source: address(source),
            destination: address(server),
            payload: b"question",
        };
        let deliver = |source| hosts.deliver(3, &question(source).frame().expect("a frame"));
        // The first frame is accepted and then dropped, because its source is one of the kernel's own addresses.
        assert!(deliver("192.168.1.1:67") && deliver(relay));
        assert!(!hosts.deliver(9, b"a frame for nobody"));
        let mut room = [0; 64];
        let (length, from) = socket.recv_from(&mut room).expect("the question");
        assert_eq!((&b"question"[..], relay), (&room[..length], from.to_string().as_str()));
        socket.send_to(b"answer", relay).expect("it is sent");
        socket.send_to(b"other", "192.168.1.9:67").expect("it is sent");
        let (interface, frame) = answers.recv_timeout(Duration::from_secs(20)).expect("the answer");
        let answer = Datagram::of(&frame).expect("a datagram, with its checksum");
        assert_eq!(
            (3, address(server), &b"answer"[..]),
            (interface, answer.source, answer.payload)
        );
        // A datagram to another address is passed to the worker. The reply to the relay is not passed to the worker.
        let other = workers.sent(|interface, frame| interface == 3 && Datagram::of(frame).is_some());
        assert_eq!(b"other", Datagram::of(&other).expect("a datagram").payload);
        hosts.stop();
    });
}

#[test]
fn host_has_the_interfaces_of_its_router_and_the_kernel_keeps_still() {
    alone(
        "host_has_the_interfaces_of_its_router_and_the_kernel_keeps_still",
        || {
            let (hosts, mut workers) = start(vec![red()]);
            let link = ip("-n sluice-red -o link show dev inside");
            for part in ["NOARP", "LOWER_UP", "mtu 1400", "link/ether 02:00:00:00:01:01"] {
                assert!(link.contains(part), "{part}: {link}");
            }
            let expected = ["192.168.1.1/24", "2001:db8:1::1/64", "fe80::ff:fe00:101/64"];
            assert_eq!(expected.map(String::from).to_vec(), addresses("sluice-red", "inside"));
            assert!(!ip("-n sluice-red -6 -o address show dev inside").contains("tentative"));
            assert!(ip("-n sluice-red -o link show dev lo").contains("LOWER_UP"));
            for (setting, value) in [
                ("ipv4/conf/all/rp_filter", "0"),
                ("ipv4/conf/inside/rp_filter", "0"),
                ("ipv4/conf/all/forwarding", "0"),
                ("ipv6/conf/inside/accept_ra", "0"),
                ("ipv6/conf/all/forwarding", "0"),
            ] {
                let path = format!("/proc/sys/net/{setting}");
                let found = within("sluice-red", move || std::fs::read_to_string(path).expect("a setting"));
                assert_eq!(value, found.trim(), "{setting}");
            }
            // The kernel has a default route of last resort to Sluice. Daemons do not see this route.
            let to = |address: &str| ip(&format!("-n sluice-red route get {address}"));
            for (far, own) in [("198.51.100.7", "192.168.1.1"), ("2001:db8:9::7", "2001:db8:1::1")] {
                let way = to(far);
                assert!(
                    way.contains("dev inside") && way.contains(&format!("src {own}")),
                    "{way}"
                );
            }
            assert!(!ip("-n sluice-red route show").contains("default"));
            assert!(!ip("-n sluice-red -6 route show").contains("default"));
            within("sluice-red", || {
                let socket = UdpSocket::bind("192.168.1.1:5000").expect("an address of its own");
                socket.send_to(b"far", "198.51.100.7:7").expect("it is sent")
            });
            let frame = workers.sent(|interface, frame| interface == 3 && frame.ends_with(b"far"));
            let layers = layers::parse(&frame).expect("a whole packet");
            assert_eq!(7, layers.destination_port);
            let links = hosts.links();
            let number = link.split(':').next().and_then(|number| number.parse().ok());
            assert_eq!(
                (1, "red", 3, number),
                (links.len(), &*links[0].router, links[0].index, Some(links[0].link))
            );
            hosts.stop();
            assert!(!exists("sluice-red"));
        },
    );
}

#[test]
fn connection_is_answered_by_who_listens_in_the_host() {
    alone("connection_is_answered_by_who_listens_in_the_host", || {
        let (hosts, mut workers) = start(vec![red()]);
        let _listener = within("sluice-red", || {
            TcpListener::bind("192.168.1.1:179").expect("a listener")
        });
        let syn = packet::tcp4("192.168.1.10:40000", "192.168.1.1:179").flags(flag::SYN);
        let syn = syn.macs(PEER_MAC, MAC).build();
        assert!(workers.to_hosts[1].push(3, [&syn[..12], &syn[12..]]));
        let is_tcp = |_, frame: &[u8]| layers::parse(frame).is_ok_and(|layers| layers.protocol == 6);
        let answer = workers.sent(is_tcp);
        let key = layers::parse(&answer).expect("a whole packet").key4(&answer, 0).tuple();
        let peer = Ipv4Addr::new(192, 168, 1, 10).to_bits();
        assert_eq!(
            (179, peer, 40_000),
            (key.source_port, key.destination, key.destination_port)
        );
        assert_eq!(
            (Some(&0x12), &MAC),
            (answer.get(47), &answer[6..12].try_into().expect("six bytes"))
        );
        // Deliver a frame for an interface that does not exist.
        assert!(workers.to_hosts[0].push(77, [&syn, &[]]));
        until("a stray", || (hosts.strays() == 1).then_some(()));
        let counts = hosts.counts("red").expect("the host's");
        assert_eq!((1, 0, 0), (counts.delivered, counts.undelivered, counts.lost));
        assert_eq!((None, 0), (hosts.counts("blue"), hosts.panics()));
        hosts.stop();
    });
}

#[test]
fn groups_pass_in_both_directions() {
    alone("groups_pass_in_both_directions", || {
        let (hosts, mut workers) = start(vec![red()]);
        let socket = within("sluice-red", || {
            let socket = UdpSocket::bind("0.0.0.0:520").expect("a socket");
            let own = Ipv4Addr::new(192, 168, 1, 1);
            socket
                .join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 9), &own)
                .expect("a group");
            socket
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("a timeout");
            socket
        });
        let update = packet::udp4("192.168.1.10:520", "224.0.0.9:520")
            .payload(b"routes")
            .ttl(1);
        let frame = update.macs(PEER_MAC, multicast4(0xe000_0009)).build();
        assert!(workers.to_hosts[0].push(3, [&frame, &[]]));
        let mut buffer = [0; 64];
        let (length, from) = socket.recv_from(&mut buffer).expect("what the neighbour sent");
        assert_eq!(
            (&b"routes"[..], "192.168.1.10:520"),
            (&buffer[..length], &*from.to_string())
        );
        socket.set_multicast_loop_v4(false).expect("no echo");
        socket.send_to(b"answer", "224.0.0.9:520").expect("it is sent");
        let sent = workers.sent(|_, frame| frame.ends_with(b"answer"));
        assert_eq!(multicast4(0xe000_0009), sent[..6]);
        assert_eq!(Some(&1), sent.get(22));
        hosts.stop();
    });
}

#[test]
fn link_that_goes_down_is_seen_in_the_host() {
    alone("link_that_goes_down_is_seen_in_the_host", || {
        let (hosts, _workers) = start(vec![red()]);
        assert!(has_carrier("sluice-red", "inside"));
        hosts.set_link(3, false);
        until("no carrier", || (!has_carrier("sluice-red", "inside")).then_some(()));
        // The routes and addresses remain.
        assert_eq!(3, addresses("sluice-red", "inside").len());
        // The link remains down when the configuration changes.
        let mut other = red();
        other.interfaces[0]
            .addresses
            .push(("192.168.2.1".parse().expect("an address"), 24));
        hosts.update(vec![other]).expect("a change");
        assert_eq!(
            (4, false),
            (
                addresses("sluice-red", "inside").len(),
                has_carrier("sluice-red", "inside")
            )
        );
        hosts.set_link(3, true);
        until("a carrier", || has_carrier("sluice-red", "inside").then_some(()));
        hosts.stop();
    });
}

/// A minimal daemon: `cat`, which echoes its input.
fn daemon(namespace: &str) -> Child {
    let child = Command::new("ip")
        .args(["netns", "exec", namespace, "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    child.expect("ip runs")
}

#[test]
fn namespace_of_a_process_that_died_is_taken_over_with_what_lives_in_it() {
    alone(
        "namespace_of_a_process_that_died_is_taken_over_with_what_lives_in_it",
        || {
            let mut before = red();
            before.interfaces.push(interface(4, "gone", &["192.168.4.1/24"]));
            let (hosts, workers) = start(vec![before]);
            let socket = within("sluice-red", || {
                let socket = UdpSocket::bind("192.168.1.1:5000").expect("an address of its own");
                socket
                    .set_read_timeout(Some(Duration::from_secs(20)))
                    .expect("a timeout");
                socket
            });
            let mut daemon = daemon("sluice-red");
            // Add an address and a route, as a daemon would.
            ip("-n sluice-red address add 192.168.1.77/32 dev inside");
            ip("-n sluice-red route add 10.9.0.0/16 via 192.168.1.10 dev inside onlink");
            // Simulate a crash, after which nothing is cleaned up.
            drop((hosts, workers));
            until("no carrier", || (!has_carrier("sluice-red", "inside")).then_some(()));
            let mut now = red();
            now.interfaces[0].addresses[0] = (IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1)), 24);
            now.interfaces[0].addresses[1] = ("2001:db8:7::1".parse().expect("an address"), 64);
            let (hosts, mut workers) = start(vec![now]);
            let expected = [
                "192.168.1.1/24",
                "192.168.1.77/32",
                "2001:db8:7::1/64",
                "fe80::ff:fe00:101/64",
            ];
            assert_eq!(expected.map(String::from).to_vec(), addresses("sluice-red", "inside"));
            assert!(ip("-n sluice-red route show").contains("10.9.0.0/16"));
            assert!(!ip("-n sluice-red link show").contains("gone"));
            assert!(has_carrier("sluice-red", "inside"));
            let question = packet::udp4("192.168.1.10:7", "192.168.1.1:5000")
                .payload(b"alive?")
                .macs(PEER_MAC, MAC);
            assert!(workers.to_hosts[0].push(3, [&question.build(), &[]]));
            let mut buffer = [0; 64];
            let (length, from) = socket.recv_from(&mut buffer).expect("the socket lives on");
            assert_eq!(b"alive?", &buffer[..length]);
            socket.send_to(b"alive.", from).expect("it is sent");
            workers.sent(|_, frame| frame.ends_with(b"alive."));
            daemon
                .stdin
                .take()
                .expect("its input")
                .write_all(b"still here")
                .expect("it reads");
            let output = daemon.wait_with_output().expect("it ends");
            assert_eq!(b"still here", &output.stdout[..]);
            hosts.stop();
            assert!(!exists("sluice-red"));
        },
    );
}

#[test]
fn routers_come_and_go_without_disturbing_others() {
    alone("routers_come_and_go_without_disturbing_others", || {
        let (hosts, mut workers) = start(vec![red()]);
        let number = hosts.links()[0].link;
        // A second router has an interface with the same name, address and MAC.
        let mut blue = red();
        (blue.name, blue.interfaces[0].index, blue.uplinks) = ("blue".into(), 5, [None; 2]);
        hosts.update(vec![red(), blue.clone()]).expect("one more");
        assert_eq!(2, hosts.links().len());
        assert!(has_carrier("sluice-blue", "inside"));
        // The interface gets a different index, and a second interface is added.
        let mut moved = red();
        moved.interfaces[0].index = 9;
        moved.interfaces.push(interface(3, "more", &["192.168.3.1/24"]));
        hosts.update(vec![moved, blue]).expect("a change");
        let links = hosts.links();
        let same = links.iter().find(|link| link.index == 9).expect("it is there");
        assert_eq!((3, "red", number), (links.len(), &*same.router, same.link));
        let raw = packet::frame4(
            Ipv4Addr::new(192, 168, 3, 10),
            Ipv4Addr::new(192, 168, 3, 1),
            Transport::Raw(IpNumber(254)),
        );
        assert!(workers.to_hosts[0].push(3, [&raw.macs(PEER_MAC, MAC).build(), &[]]));
        // The kernel answers a packet of an unknown protocol with an ICMP error. The kernel sends the error on the
        // interface that now has this index.
        workers
            .sent(|interface, frame| interface == 3 && layers::parse(frame).is_ok_and(|layers| layers.protocol == 1));
        hosts.update(Vec::new()).expect("none");
        assert_eq!((false, false), (exists("sluice-red"), exists("sluice-blue")));
        assert_eq!((0, 0), (hosts.panics(), hosts.strays()));
        hosts.stop();
    });
}

#[test]
fn interface_whose_name_the_kernel_does_not_take_is_told() {
    alone("interface_whose_name_the_kernel_does_not_take_is_told", || {
        let (_, queues) = Workers::new();
        let long = router("red", vec![interface(3, "a-name-of-sixteen", &["192.168.1.1/24"])]);
        let error = Hosts::start(vec![long], queues)
            .err()
            .expect("it is refused")
            .to_string();
        assert!(
            error.contains("router red can't be set up: a-name-of-sixteen") && error.contains("15 bytes"),
            "{error}"
        );
    });
}
