//! Tests that a worker allocates no memory. Every allocation of the thread within `Worker::round` is counted.
//! Allocations of the in-memory devices are not counted: these devices allocate a buffer for each frame, whereas a
//! driver takes buffers from a pool.

mod inspected;
mod rig;
mod tunnelled;

use allocation_counter::{measure, opt_out};
use arrayvec::ArrayVec;
use rig::{HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig};
use sluice_engine::packet::io::memory::MemoryIo;
use sluice_engine::packet::io::{
    BURST_SIZE, BufferIndex, Handover, NoteWords, PacketIo, Packets, Parked, PortIndex, ReceiveError, WorkerIndex,
};
use sluice_engine::snapshot::sites::{SiteKey, SiteSettings};
use sluice_nat::behaviour::Blocks;
use sluice_nat::sites::{Terminal, context};
use sluice_table::token_bucket::TokenRate;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::Checksums;

/// In-memory devices. Their allocations are not counted.
struct Uncounted(MemoryIo);

fn paused<R>(run: impl FnOnce() -> R) -> R {
    let mut result = None;
    opt_out(|| result = Some(run()));
    result.expect("it has run")
}

impl PacketIo for Uncounted {
    fn receive(&mut self, port: PortIndex) -> usize {
        paused(|| self.0.receive(port))
    }
    fn packets<'a>(&'a mut self, into: &mut Packets<'a>) {
        self.0.packets(into);
    }
    fn transmit(&mut self, port: PortIndex, slots: &[BufferIndex]) -> usize {
        paused(|| self.0.transmit(port, slots))
    }
    fn free(&mut self, slots: &[BufferIndex]) {
        paused(|| self.0.free(slots));
    }
    fn allocate(&mut self, count: usize) -> usize {
        paused(|| self.0.allocate(count))
    }
    fn park(&mut self, slot: BufferIndex) -> Option<Parked> {
        paused(|| self.0.park(slot))
    }
    fn unpark(&mut self, parked: Parked) -> Result<BufferIndex, Parked> {
        paused(|| self.0.unpark(parked))
    }
    fn release(&mut self, parked: Parked) {
        paused(|| self.0.release(parked));
    }
    fn end(&mut self) -> usize {
        paused(|| self.0.end())
    }
    fn refused(&self, port: PortIndex) -> &[(ReceiveError, u64)] {
        self.0.refused(port)
    }
    fn outstanding(&self) -> usize {
        self.0.outstanding()
    }
    fn parked(&self) -> usize {
        self.0.parked()
    }
}

impl Handover for Uncounted {
    fn free_entries(&self, to: WorkerIndex) -> usize {
        paused(|| self.0.free_entries(to))
    }
    fn mark(&mut self) {
        self.0.mark();
    }
    fn waiting(&self) -> usize {
        self.0.waiting()
    }
    fn has_arrived(&self) -> bool {
        self.0.has_arrived()
    }
    fn hand_over(&mut self, to: WorkerIndex, slots: &[BufferIndex], carried: &[NoteWords]) -> usize {
        paused(|| self.0.hand_over(to, slots, carried))
    }
    fn take_over(&mut self, carried: &mut ArrayVec<NoteWords, BURST_SIZE>) -> usize {
        paused(|| self.0.take_over(carried))
    }
}

fn rig(change: impl FnOnce(&mut Plan)) -> Rig {
    let mut plan = Plan {
        device: |io| Box::new(Uncounted(io)),
        ..Plan::default()
    };
    change(&mut plan);
    Rig::new(plan)
}

/// Processes these frames until the worker is idle, and asserts that nothing is allocated. Returns the number of sent frames.
#[track_caller]
fn allocates_nothing(rig: &mut Rig, interface: u16, frames: &[Vec<u8>]) -> usize {
    for frame in frames {
        rig.wires[0].inject(interface, frame, Checksums::Unverified);
    }
    let now = rig.now;
    let worker = &mut rig.workers[0];
    let info = measure(|| while worker.round(now) > 0 {});
    assert_eq!(0, info.count_total);
    rig.round();
    rig.sent().len()
}

fn question(port: u16) -> Frame {
    let source = std::net::SocketAddrV4::new(HOST.parse().unwrap(), port);
    packet::udp4(source, "198.51.100.7:53".parse::<std::net::SocketAddrV4>().unwrap()).macs(HOST_MAC, INSIDE_MAC)
}

#[test]
fn counting_sees_an_allocation() {
    assert_eq!(1, measure(|| drop(std::hint::black_box(vec![1u8; 100]))).count_total);
}

#[test]
fn new_and_established_sessions_allocate_nothing_from_the_first_packet() {
    let mut rig = rig(|_| {});
    let frames: Vec<_> = (0..500).map(|port| question(1000 + port).build()).collect();
    assert_eq!(500, allocates_nothing(&mut rig, INSIDE, &frames));
    assert_eq!(500, allocates_nothing(&mut rig, INSIDE, &frames));
    rig.seconds(299);
    rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 2_000_000_000);
    allocates_nothing(&mut rig, INSIDE, &[]);
    rig.seconds(3);
    assert_eq!(0, rig.live());
}

#[test]
fn chains_and_their_copies_allocate_nothing() {
    use sluice_engine::snapshot::chains::{Action, ChainText, Chains, ClassText, PolicerRate};
    let mut rig = rig(|plan| {
        plan.snapshot = |snapshot| {
            let step = |action| ClassText {
                text: String::new(),
                action,
            };
            let class = |port: u32| Action::Classify {
                v4: vec![
                    sluice_filter::Rule::any()
                        .with(sluice_filter::Field::SourcePort, port, port)
                        .unwrap(),
                ],
                v6: Vec::new(),
                to: "few".into(),
            };
            let input = (1000..1020).map(class).chain([
                Action::Count("all".into()),
                Action::Police(PolicerRate::Packets(1, 300), Some("few".into())),
                Action::Mirror(OUTSIDE),
                Action::Sessions,
            ]);
            let chain = |name: &str, actions: Vec<Action>| ChainText {
                name: name.into(),
                steps: actions.into_iter().map(step).collect(),
            };
            let written = [chain("input", input.collect()), chain("few", vec![Action::Forward])];
            snapshot.chains = vec![Some(std::sync::Arc::new(Chains::new(&written, 1).unwrap()))];
        };
    });
    let frames: Vec<_> = (0..500).map(|port| question(1000 + port).build()).collect();
    assert!(allocates_nothing(&mut rig, INSIDE, &frames) > 500);
    assert!(allocates_nothing(&mut rig, INSIDE, &frames) >= 500);
}

#[test]
fn refusals_and_errors_allocate_nothing() {
    let mut rig = rig(|plan| (plan.sessions, plan.outside_mtu) = (4, 600));
    let frames: Vec<_> = (0..100).map(|port| question(1000 + port).build()).collect();
    allocates_nothing(&mut rig, INSIDE, &frames);
    let dead = question(1).ttl(1).build();
    let long = question(1000).payload(&[0; 1000]).build();
    assert!(allocates_nothing(&mut rig, INSIDE, &[dead, long, vec![1; 9]]) > 0);
    assert!(!rig.all_drops().is_empty());
}

#[test]
fn neighbours_fragments_and_what_waits_allocate_nothing() {
    let mut rig = rig(|plan| (plan.known_neighbours, plan.translate) = (false, false));
    // The first neighbour request may enlarge a buffer once.
    let other: std::net::SocketAddrV4 = "203.0.113.99:9".parse().unwrap();
    rig.host_sends(&packet::udp4(
        "192.168.1.10:1".parse::<std::net::SocketAddrV4>().unwrap(),
        other,
    ));
    let frames: Vec<_> = (0..10).map(|port| question(1000 + port).build()).collect();
    assert_eq!(1, allocates_nothing(&mut rig, INSIDE, &frames));
    let reply = packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1");
    assert_eq!(4, allocates_nothing(&mut rig, OUTSIDE, &[reply]));
    let ask = packet::arp_request(HOST_MAC, HOST, "192.168.1.1");
    let ping = packet::icmp4_echo(HOST, "192.168.1.1", 7, 1).macs(HOST_MAC, INSIDE_MAC);
    assert_eq!(2, allocates_nothing(&mut rig, INSIDE, &[ask, ping.build()]));

    let mut rig = self::rig(|plan| plan.outside_mtu = 600);
    let mut whole = question(1).payload(&[0; 1000]);
    if let packet::Network::V4(header) = &mut whole.network {
        header.dont_fragment = false;
    }
    assert_eq!(2, allocates_nothing(&mut rig, INSIDE, &[whole.build()]));
    let first = question(2).payload(&[0; 24]);
    let mut later = first.clone();
    later.transport = packet::Transport::Raw(packet::IpNumber(17));
    let later = later.fragment(4, false, 1).build();
    assert_eq!(0, allocates_nothing(&mut rig, INSIDE, &[later]));
    assert_eq!(
        2,
        allocates_nothing(&mut rig, INSIDE, &[first.fragment(0, true, 1).build()])
    );
}

#[test]
fn listing_and_clearing_allocate_nothing_in_the_worker() {
    use sluice_engine::worker::request::{BindingFilter, BindingList, BindingUsage, Cursor, Filter, Request};
    let mut rig = rig(|plan| plan.change_pool = |pool| pool.blocks = Some(Blocks::default()));
    let frames: Vec<_> = (0..500).map(|port| question(1000 + port).build()).collect();
    allocates_nothing(&mut rig, INSIDE, &frames);
    let list = Request::List {
        cursor: Cursor::default(),
        filter: Filter::default(),
        into: Vec::with_capacity(1000),
    };
    let clear = Request::Clear {
        cursor: Cursor::default(),
        filter: Filter::default(),
        ended: 0,
    };
    // The channel allocates memory when the first reply is sent.
    rig.ask(0, Request::EndTrace);
    let bound = |into| Request::ListBindings {
        cursor: Cursor::default(),
        filter: BindingFilter::default(),
        into,
    };
    let bindings = [
        bound(BindingList::Mappings(Vec::with_capacity(1000))),
        bound(BindingList::Subscribers(Vec::with_capacity(10))),
        bound(BindingList::Blocks(Vec::with_capacity(10))),
        Request::Use(Box::new(BindingUsage {
            ports: vec![[0; 3]],
            ..BindingUsage::default()
        })),
    ];
    for request in [list].into_iter().chain(bindings).chain([clear]) {
        rig.desks[0].requests.try_send(request).unwrap();
        let now = rig.now;
        let worker = &mut rig.workers[0];
        let info = measure(|| (0..200).for_each(|_| assert_eq!(0, worker.round(now))));
        assert_eq!(0, info.count_total);
        assert!(rig.desks[0].replies.try_recv().is_ok());
    }
    assert_eq!(0, rig.live());
}

/// A filter that contains a logging rule, a rate limit, rules that match and rules that don't match. Its default action
/// rejects packets.
fn filtered(snapshot: &mut sluice_engine::snapshot::Snapshot, sessions: bool, kind: sluice_filter::MatcherKind) {
    use sluice_filter::{Action, CompiledRule, Counters, Field, Filters, RejectKind, Rule, Settings, Verdict};
    let to_port = |action, port| CompiledRule {
        action,
        v4: vec![Rule::any().with(Field::DestinationPort, port, port).unwrap()],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    };
    let mut rules = vec![
        to_port(Action::Log, 53),
        to_port(Action::Limit(TokenRate::new(100, 100)), 53),
        to_port(Action::Decide(Verdict::Accept), 53),
    ];
    rules.extend((1..200).map(|port| to_port(Action::Decide(Verdict::Drop), port)));
    let settings = Settings {
        kind,
        default: Verdict::Reject(RejectKind::Reset),
        sessions,
        workers: 1,
    };
    let filters = Filters::new(&rules, &settings, Counters::new(rules.len())).unwrap();
    snapshot.filter_by(std::sync::Arc::new(filters));
}

#[test]
fn filter_allocates_nothing_whatever_its_matcher() {
    use sluice_filter::{ListSearch, MatcherKind};
    let snapshots: [fn(&mut sluice_engine::snapshot::Snapshot); 5] = [
        |snapshot| filtered(snapshot, true, MatcherKind::Best),
        |snapshot| filtered(snapshot, false, MatcherKind::Best),
        |snapshot| filtered(snapshot, false, MatcherKind::Linear),
        |snapshot| filtered(snapshot, false, MatcherKind::Trie { max: 1 << 20 }),
        |snapshot| {
            let (max, entries, probe) = (1 << 20, 11, ListSearch::Bisection);
            filtered(snapshot, false, MatcherKind::CachedTrie { max, entries, probe });
        },
    ];
    for snapshot in snapshots {
        let mut rig = rig(|plan| (plan.translate, plan.snapshot) = (false, snapshot));
        let mut frames: Vec<_> = (0..300).map(|port| question(1000 + port).build()).collect();
        let source = std::net::SocketAddrV4::new(HOST.parse().unwrap(), 1000);
        let refused = packet::tcp4(source, "198.51.100.7:9999".parse::<std::net::SocketAddrV4>().unwrap());
        frames.push(refused.macs(HOST_MAC, INSIDE_MAC).build());
        // The packets within the rate limit pass, and one reset is sent.
        assert_eq!(
            101,
            allocates_nothing(&mut rig, INSIDE, &frames),
            "{:?}",
            rig.all_drops()
        );
    }
}

#[test]
fn shards_that_are_lent_and_go_back_allocate_nothing() {
    let mut rig = rig(|plan| {
        (plan.workers, plan.shards) = (2, 16);
        plan.stages = [vec![0], vec![0], vec![1], vec![0]];
        plan.senders = vec![0];
        plan.assist = Some(sluice_engine::snapshot::assist::Settings {
            threshold: 16,
            slice: u64::MAX,
        });
    });
    let ask = |host: u16, port: u16| {
        let source = std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(192, 168, 1, 16 + host as u8), port);
        let remote: std::net::SocketAddrV4 = "198.51.100.7:53".parse().unwrap();
        packet::udp4(source, remote).macs(HOST_MAC, INSIDE_MAC).build()
    };
    for host in 0..16 {
        let address = format!("192.168.1.{}", 16 + host);
        rig.know(INSIDE, rig::plain(&address), HOST_MAC);
    }
    let mut count = 0;
    let allocated = |rig: &Rig| rig.plane.counters()[0].shards_assisted.get();
    for turn in 0..1000 {
        for _ in 0..if turn < 100 { 24 } else { 0 } {
            count += 1;
            rig.wires[0].inject(INSIDE, &ask(count % 16, 1000 + count % 7), Checksums::Unverified);
        }
        let (now, slow) = (rig.now, turn < 100 && turn % 4 > 0);
        let [first, second] = &mut rig.workers[..] else {
            panic!("two workers")
        };
        let info = measure(|| {
            first.round(now);
            if !slow {
                second.round(now);
            }
        });
        assert_eq!(0, info.count_total, "turn {turn}");
        assert!(turn != 99 || allocated(&rig) > 0);
        rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 50_000);
    }
    assert_eq!(0, allocated(&rig));
    assert!(rig.plane.counters()[0].assisted.get() > 0);
    rig.check();
    let sent = rig.sent().len();
    assert_eq!(usize::from(count), sent, "{:?}", rig.all_drops());
}

#[test]
fn inspection_and_its_records_allocate_nothing() {
    use sluice_engine::session::records::Records;
    use sluice_inspect::transactions::LoggedProtocols;
    let mut rig = rig(|plan| {
        plan.inspection = Some(rig::inspected::plan());
        plan.snapshot = |snapshot| {
            let rule = r#"drop udp any any -> any any (msg:"m"; content:"evil"; sid:1;)"#;
            let mut inspection = rig::inspected::inspection(rule);
            inspection.records = Records {
                drops: true,
                flows: true,
                max: 64,
            };
            inspection.settings.logged = LoggedProtocols {
                http: true,
                dns: true,
                tls: true,
            };
            snapshot.inspect_by(std::sync::Arc::new(inspection));
        };
    });
    let frames = [&[0; 12][..], b"evil", b"more"].map(|payload| question(1000).payload(payload).build());
    assert_eq!(1, allocates_nothing(&mut rig, INSIDE, &frames));
    rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 400_000_000_000);
    allocates_nothing(&mut rig, INSIDE, &[]);
    rig.seconds(1);
    let told: u64 = rig
        .plane
        .counters()
        .iter()
        .map(|worker| worker.inspection.records_queued.get())
        .sum();
    // The four records are one message, two dropped packets, and the end of the flow.
    assert_eq!((0, 4), (rig.live(), told));
}

#[test]
fn inspection_of_fragments_and_of_what_is_shed_allocates_nothing() {
    for begins in [0, 64] {
        let mut rig = rig(|plan| {
            let inspected = inspected::plan();
            (plan.inspection, plan.snapshot) = (inspected.inspection, inspected::inspected);
        });
        let mut snapshot = rig.plane.snapshot().clone();
        inspected::change(&mut snapshot, |inspection| {
            inspection.overload.begins = begins;
            inspection.overload.classes = vec![sluice_engine::features::inspection::Class {
                ports: vec![53..=53],
                shed: sluice_engine::features::inspection::Shed::Bypass,
                ..Default::default()
            }];
        });
        let (_, routes) = rig::snapshot(&Plan::default());
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
        // The first fragment creates the session.
        let mut frames = Vec::new();
        for number in 0..40 {
            let whole = question(1000).payload(&[b'.'; 96]);
            frames.extend(inspected::pieces(&whole, &[4, 8], number).iter().map(Frame::build));
        }
        frames.swap(10, 80);
        frames.remove(90);
        rig.send(INSIDE, &frames[0]);
        allocates_nothing(&mut rig, INSIDE, &frames);
        // Fragments that have timed out are dropped without allocation as well.
        rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 5_000_000_000);
        allocates_nothing(&mut rig, INSIDE, &[]);
        inspected::ledger(&mut rig);
    }
}

#[test]
fn applications_are_found_and_denied_without_allocation() {
    use sluice_engine::session::identification::IdentificationSettings;
    use sluice_filter::{
        Action, ApplicationMatch, CompiledRule, Counters, Filters, MatcherKind, RejectKind, Rule, Settings, Verdict,
    };
    use sluice_inspect::applications::{ApplicationCapacity, ApplicationNames};
    let mut rig = rig(|plan| {
        plan.applications = Some(ApplicationCapacity {
            flows: 100,
            memory: 1 << 20,
            ..ApplicationCapacity::default()
        });
        plan.snapshot = |snapshot| {
            let names = ApplicationNames::installed().unwrap();
            let application = names.number("DNS").unwrap();
            let rule = |action, applications| CompiledRule {
                action: Action::Decide(action),
                v4: vec![Rule::any()],
                v6: Vec::new(),
                applications,
                conditions: Default::default(),
            };
            let dns = ApplicationMatch {
                master: None,
                application,
            };
            let rules = [
                rule(Verdict::Reject(RejectKind::Reset), vec![dns]),
                rule(Verdict::Accept, Vec::new()),
            ];
            let settings = Settings {
                kind: MatcherKind::Best,
                default: Verdict::Drop,
                sessions: true,
                workers: 1,
            };
            let filters = Filters::new(&rules, &settings, Counters::new(rules.len())).unwrap();
            snapshot.filter_by(std::sync::Arc::new(filters));
            snapshot.identify_by(std::sync::Arc::new(IdentificationSettings::new(
                vec![true, false],
                names.into(),
            )));
        };
    });
    let dns = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
    let frame = |port, (to, payload): (u16, &[u8])| {
        let source = std::net::SocketAddrV4::new(HOST.parse().unwrap(), port);
        let remote = std::net::SocketAddrV4::new([198, 51, 100, 7].into(), to);
        let frame = packet::udp4(source, remote).payload(payload);
        frame.macs(HOST_MAC, INSIDE_MAC).build()
    };
    // There are more sessions than can be identified simultaneously, so some identifications end immediately.
    let frames: Vec<_> = (0..300)
        .flat_map(|port| {
            let said: (u16, &[u8]) = if port % 2 == 0 {
                (53, dns)
            } else {
                (41_234, &[0xa5; 40])
            };
            [frame(1000 + port, said), frame(1000 + port, said)]
        })
        .collect();
    allocates_nothing(&mut rig, INSIDE, &frames);
    let counters = &rig.plane.counters()[0];
    let [opened, found, _, _, refused, _] =
        std::array::from_fn::<_, 6, _>(|result| counters.identification.results.get(result));
    assert!(
        opened >= 200 && found >= 100 && refused > 0,
        "{opened} {found} {refused}"
    );
    assert!(rig.drops("filter-application") >= 200);
}

#[test]
fn rules_that_give_way_to_others_are_neither_made_nor_freed_in_the_worker() {
    let mut rig = rig(|plan| {
        let inspected = inspected::plan();
        (plan.inspection, plan.snapshot) = (inspected.inspection, inspected::inspected);
    });
    rig.send(INSIDE, &question(1000).payload(b"before").build());
    let (mut freed, routes) = (0, rig::snapshot(&Plan::default()).1);
    for seconds in [1, 20, 20] {
        let mut snapshot = rig.plane.snapshot().clone();
        inspected::inspected(&mut snapshot);
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
        rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + seconds * 1_000_000_000);
        for port in [1000, 1000, 2000] {
            let frame = question(port).payload(b"after").build();
            rig.wires[0].inject(INSIDE, &frame, Checksums::Unverified);
            let (now, worker) = (rig.now, &mut rig.workers[0]);
            let rounds = || (0..8).for_each(|_| _ = worker.round(now));
            let info = measure(rounds);
            assert_eq!((0, 0), (info.count_total, info.count_current), "after {seconds} s");
        }
        rig.sent();
        freed += measure(|| rig.plane.collect()).bytes_current;
    }
    // The memory was freed by the control thread, not by the worker.
    assert!(freed < 0, "{freed}");
    let reopened = rig.plane.counters()[0].inspection.reopened.get();
    assert!(reopened > 0);
}

#[test]
fn hosts_packets_allocate_nothing() {
    let mut rig = rig(|plan| plan.interfaces = |interfaces| interfaces.iter_mut().for_each(|one| one.host = true));
    let syn = |port: u16| {
        let source = std::net::SocketAddrV4::new(HOST.parse().unwrap(), port);
        let target = "192.168.1.1:179".parse::<std::net::SocketAddrV4>().unwrap();
        packet::tcp4(source, target).macs(HOST_MAC, INSIDE_MAC)
    };
    let frames: Vec<_> = (0..500).map(|port| syn(1000 + port).build()).collect();
    assert_eq!(0, allocates_nothing(&mut rig, INSIDE, &frames));
    assert_eq!(500, rig.plane.counters()[0].punted.get());
    let answer = packet::tcp4("192.168.1.1:179", "192.168.1.10:40000").build();
    let queue = rig.desks[0].from_hosts.as_mut().unwrap();
    (0..500).for_each(|_| assert!(queue.push(INSIDE, [&answer, &[]])));
    assert_eq!(500, allocates_nothing(&mut rig, INSIDE, &[]));
}

#[test]
fn tunnels_of_every_type_allocate_nothing() {
    for tunnel in tunnelled::all() {
        let mut plan = tunnelled::plan(tunnel);
        plan.device = |io| Box::new(Uncounted(io));
        let mut rig = tunnelled::started(plan);
        let question = packet::udp4("192.168.1.10:5000", "10.77.0.5:53").macs(HOST_MAC, INSIDE_MAC);
        let long = question.clone().payload(&[0; 1472]);
        let frames = [question.build(), long.build()];
        assert_eq!(2, allocates_nothing(&mut rig, INSIDE, &frames));
        let answer = packet::udp4("10.77.0.5:53", "192.168.1.10:5000");
        let arriving = tunnelled::arriving(&tunnel, &answer).build();
        assert_eq!(1, allocates_nothing(&mut rig, OUTSIDE, &[arriving]));
    }
}

#[test]
fn packets_of_sites_allocate_nothing() {
    let settings = || SiteSettings {
        access_interfaces: vec![(INSIDE, SiteKey::One(context(0, 0, false)))],
        publics: vec![OUTSIDE],
        relays: vec![(0, rig::v4("192.168.1.1"))],
    };
    let mut rig = rig(|plan| {
        plan.translate = false;
        plan.sites = Some((settings, 1, 4));
        plan.site_networks = vec![(0, rig::v4("203.0.113.192"), rig::v4("203.0.113.255"))];
    });
    let writer = rig.writer.as_mut().unwrap();
    writer.set_site(0, Some([6, 0, 0, 0, 0, 1]), None).unwrap();
    writer.set_public(0, 0, Some(rig::v4("203.0.113.201"))).unwrap();
    for last in [10, 11] {
        let terminal = Terminal {
            context: context(0, 0, false),
            address: rig::v4(&format!("192.168.1.{last}")),
            mac: HOST_MAC,
            interface: INSIDE,
            tags: [None; 2],
        };
        writer.add_terminal(&terminal).unwrap();
    }
    // Frames of two terminals with the same source port and of an unknown terminal, DHCP, and ARP for the gateway.
    let udp = |from: &str, to: &str| packet::udp4(from, to).macs(HOST_MAC, INSIDE_MAC).build();
    let frames = [
        udp("192.168.1.10:5000", "198.51.100.7:53"),
        udp("192.168.1.11:5000", "198.51.100.7:53"),
        udp("192.168.1.12:5000", "198.51.100.7:53"),
        udp("192.168.1.10:68", "255.255.255.255:67"),
        packet::arp_request(HOST_MAC, HOST, "192.168.1.1"),
    ];
    assert_eq!(3, allocates_nothing(&mut rig, INSIDE, &frames));
    rig.writer.as_mut().unwrap().set_public(0, 0, None).unwrap();
    let answer = packet::udp4("198.51.100.7:53", "203.0.113.201:5000").macs(ROUTER_MAC, [6, 0, 0, 0, 0, 1]);
    assert_eq!(0, allocates_nothing(&mut rig, OUTSIDE, &[answer.build()]));
}
