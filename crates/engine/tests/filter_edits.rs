//! Tests of filter rules that are added and removed individually. New flows use the change immediately, sessions after
//! their revalidation.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use crate::rig::{OUTSIDE, Plan, Rig};
use sluice_engine::packet::lists::NodeIndex;
use sluice_engine::snapshot::Snapshot;
use sluice_filter::{
    Action, ChangeResult, CompiledRule, Counters, Field, Filters, MatcherKind, Range, Rule, RuleList, Settings, Verdict,
};
use sluice_testkit::packet::{self, Frame};

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const DROP: Action = Action::Decide(Verdict::Drop);

const SETTINGS: Settings = Settings {
    kind: MatcherKind::Best,
    default: Verdict::Drop,
    sessions: true,
    workers: 1,
};

/// A rule that accepts all UDP packets.
fn all_udp() -> CompiledRule {
    let rule = Rule::<u32>::any().with(Field::Protocol, 17, 17).unwrap();
    let v6 = Rule::<u128>::any().with(Field::Protocol, 17, 17).unwrap();
    CompiledRule {
        action: ACCEPT,
        v4: vec![rule],
        v6: vec![v6],
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

fn start(snapshot: &mut Snapshot) {
    let filters = Filters::new(&[all_udp()], &SETTINGS, Counters::new(1)).unwrap();
    snapshot.filter_by(Arc::new(filters));
}

/// A gateway, with the rule list for edits of its filter.
struct Edited {
    rig: Rig,
    list: RuleList<&'static str>,
}

impl Edited {
    fn new(translate: bool) -> Self {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: start,
            ..Plan::default()
        });
        let list = RuleList::new([(all_udp(), "udp")].into_iter(), SETTINGS, Counters::new(1)).unwrap();
        rig.plane.replace_filter(list.filters().clone());
        Self { rig, list }
    }

    fn insert(&mut self, rule: CompiledRule) {
        let result = self.list.insert(0, rule.clone(), "new");
        self.publish(result.unwrap(), &rule);
    }

    fn remove(&mut self) {
        let rule = self.list.compiled(0).unwrap().clone();
        let result = self.list.remove(0);
        self.publish(result.unwrap(), &rule);
    }

    fn publish(&mut self, result: ChangeResult, rule: &CompiledRule) {
        if result == ChangeResult::Rebuilt {
            self.rig.plane.replace_filter(self.list.filters().clone());
        }
        self.rig.plane.filter_changed(rule);
    }

    fn follow(&mut self) {
        self.rig.pass(500);
        assert!(self.rig.plane.publish_changes(self.rig.now).is_some());
    }

    fn passes(&mut self, frame: &Frame) -> bool {
        match self.rig.host_sends(frame).as_slice() {
            [] => false,
            [sent] => {
                assert_eq!(OUTSIDE, sent.port);
                true
            }
            more => panic!("{} packets", more.len()),
        }
    }

    /// Number of packets that the express lane has taken.
    fn in_lane(&self) -> u64 {
        let counters = self.rig.plane.counters();
        counters[0].nodes[NodeIndex::express as usize].packets.get()
    }

    fn revised(&self) -> u64 {
        self.rig.plane.counters()[0].sessions_revalidated.get()
    }
}

fn from_host(port: u16, to: [u8; 4]) -> Frame {
    let host = SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 10), port);
    packet::udp4(host, SocketAddrV4::new(to.into(), 53))
}

/// A rule that drops all packets to a host.
fn deny_to(address: [u8; 4]) -> CompiledRule {
    let to = u32::from(Ipv4Addr::from(address));
    let any = Rule::<u32>::any();
    let source = any.source;
    CompiledRule {
        action: DROP,
        v4: vec![any.between(source, Range { first: to, last: to }).unwrap()],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

#[test]
fn session_stays_in_the_lane_while_rules_for_others_change_before_each_of_its_packets() {
    let mut edited = Edited::new(true);
    let frame = from_host(1, [198, 51, 101, 7]).dont_fragment().payload(&[0; 26]);
    assert!(edited.passes(&frame) && edited.passes(&frame));
    let before = edited.in_lane();
    for number in 1..=200 {
        match number % 2 {
            1 => edited.insert(deny_to([198, 51, 100, 7])),
            _ => edited.remove(),
        }
        edited.follow();
        assert!(edited.passes(&frame));
        assert_eq!(number, edited.in_lane() - before);
    }
    assert_eq!(0, edited.revised());
}

#[test]
fn rule_that_comes_denies_new_flows_at_once_and_sessions_soon_and_lets_them_when_it_goes() {
    let (denied, other) = ([198, 51, 100, 7], [198, 51, 101, 7]);
    for translate in [false, true] {
        let mut edited = Edited::new(translate);
        assert!(edited.passes(&from_host(1, denied)) && edited.passes(&from_host(1, other)));
        edited.insert(deny_to(denied));
        assert!(!edited.passes(&from_host(2, denied)));
        assert!(edited.passes(&from_host(1, denied)), "its session stays for the moment");
        edited.follow();
        let before = edited.revised();
        assert!(edited.passes(&from_host(1, other)));
        assert_eq!(before, edited.revised(), "no rule for it has changed");
        assert!(!edited.passes(&from_host(1, denied)));
        assert_eq!(before + 1, edited.revised());
        edited.remove();
        assert!(edited.passes(&from_host(1, denied)) && edited.passes(&from_host(2, denied)));
        edited.follow();
        assert!(edited.passes(&from_host(1, denied)) && edited.passes(&from_host(1, other)));
        assert_eq!(3, edited.rig.live(), "{translate}");
    }
}

#[test]
fn session_of_a_neighbour_is_confirmed_and_keeps_its_translation() {
    let mut edited = Edited::new(true);
    let flow = from_host(1, [198, 51, 100, 7]);
    let public = edited.rig.public(&flow);
    // The rule's address is close to the address of the session, so the session must be revalidated.
    edited.insert(deny_to([198, 51, 100, 8]));
    edited.follow();
    let before = edited.revised();
    assert_eq!(public, edited.rig.public(&flow));
    assert_eq!(before + 1, edited.revised());
    assert_eq!(public, edited.rig.public(&flow));
    assert_eq!(before + 1, edited.revised(), "once");
}

#[test]
fn rules_of_all_addresses_concern_every_session() {
    let mut edited = Edited::new(true);
    let flow = from_host(1, [198, 51, 100, 7]);
    assert!(edited.passes(&flow));
    let mut deny = all_udp();
    deny.action = DROP;
    edited.insert(deny);
    edited.follow();
    assert!(!edited.passes(&flow));
    assert_eq!(0, edited.rig.live());
}

#[test]
fn list_that_is_folded_goes_on_where_it_was() {
    let mut edited = Edited::new(false);
    assert!(edited.passes(&from_host(1, [198, 51, 100, 7])));
    let fold = edited.list.force_rebuild().unwrap();
    edited.insert(deny_to([198, 51, 100, 9]));
    let built = fold.build().unwrap();
    assert_eq!(Ok(true), edited.list.end_rebuild(built));
    edited.rig.plane.replace_filter(edited.list.filters().clone());
    assert!(!edited.passes(&from_host(1, [198, 51, 100, 9])));
    assert!(edited.passes(&from_host(2, [198, 51, 100, 7])));
    let counted = |edited: &Edited| {
        let place = edited.list.iter().find(|(_, name)| **name == "udp").unwrap().0;
        edited.list.filters().counters.of(place).unwrap().packets()
    };
    assert_eq!(2, counted(&edited));
}

#[test]
fn commit_that_is_refused_leaves_what_sessions_have_to_follow() {
    let mut edited = Edited::new(true);
    let flow = from_host(1, [198, 51, 100, 7]);
    assert!(edited.passes(&flow));
    edited.insert(deny_to([198, 51, 100, 7]));
    let mut larger = edited.rig.plane.snapshot().clone();
    larger.nat4.pools = sluice_nat::Pools::new(&[sluice_nat::Pool::new(0x0a00_0000, 0x0a00_ffff)]).unwrap();
    let routes = sluice_route::RouteSet::new(&[], &[]).unwrap();
    assert!(edited.rig.plane.commit(larger, std::slice::from_ref(&routes)).is_err());
    edited.follow();
    assert!(!edited.passes(&flow));
    assert_eq!(0, edited.rig.live());
}
