//! Tests of the RIB against a model. The model has a list of offers, and recomputes all routes after each change.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_route::rib::{
    DEPTH, Group, Offer, OfferedNextHop, Origin, ResolvedSet, Rib, Settings, Sink, Target, WeightedNextHop,
};
use sluice_route::{Address, DropKind, NextHop, Prefix};

/// Next hops of a resolved set, each with its fraction of the traffic.
type Shares = BTreeMap<NextHop, f64>;

#[derive(Default)]
struct Table(BTreeMap<Prefix, Shares>);

impl Sink for Table {
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet) {
        let sum: f64 = set.members().iter().map(|(_, weight)| f64::from(*weight)).sum();
        let shares = set
            .members()
            .iter()
            .map(|(hop, weight)| (*hop, f64::from(*weight) / sum));
        self.0.insert(prefix, shares.collect());
    }

    fn remove(&mut self, prefix: Prefix) {
        assert!(self.0.remove(&prefix).is_some());
    }
}

#[derive(Clone, Debug)]
enum To {
    Hops(Vec<WeightedNextHop>),
    Group(usize),
}

#[derive(Clone, Debug)]
struct Entry {
    prefix: Prefix,
    origin: Origin,
    rank: (u8, u32),
    to: To,
    stale: bool,
}

#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    groups: Vec<Vec<WeightedNextHop>>,
    down: BTreeSet<u16>,
    by_default_route: bool,
}

impl Model {
    fn position(&self, prefix: Prefix, origin: Origin, which: u32) -> Option<usize> {
        self.entries.iter().position(|entry| {
            (entry.prefix, entry.origin) == (prefix, origin)
                && match origin {
                    Origin::Kernel => entry.rank.1 == which,
                    Origin::Static => u32::from(entry.rank.0) == which,
                    Origin::Connected | Origin::Fpm => true,
                }
        })
    }

    fn hops<'m>(&'m self, entry: &'m Entry) -> &'m [WeightedNextHop] {
        match &entry.to {
            To::Hops(hops) => hops,
            To::Group(group) => &self.groups[*group],
        }
    }

    fn offers(&self, prefix: Prefix) -> Vec<&Entry> {
        let mut offers: Vec<&Entry> = self.entries.iter().filter(|entry| entry.prefix == prefix).collect();
        offers.sort_by_key(|entry| (entry.rank, entry.origin));
        offers
    }

    fn covering(&self, address: Address) -> Vec<Prefix> {
        let prefixes: BTreeSet<Prefix> = self.entries.iter().map(|entry| entry.prefix).collect();
        let mut covering: Vec<Prefix> = prefixes.into_iter().filter(|prefix| prefix.contains(address)).collect();
        covering.sort_by_key(|prefix| std::cmp::Reverse(prefix.length()));
        covering
    }

    fn up(&self, hop: NextHop) -> Shares {
        match hop.interface() {
            Some(interface) if self.down.contains(&interface) => Shares::new(),
            _ => Shares::from([(hop, 1.0)]),
        }
    }

    fn direct(&self, next_hop: OfferedNextHop) -> Shares {
        match next_hop {
            OfferedNextHop::Drop(refusal) => Shares::from([(NextHop::Drop(refusal), 1.0)]),
            // The addresses of an interface are reachable even if its link is down.
            OfferedNextHop::Local(interface) => Shares::from([(NextHop::Local(interface), 1.0)]),
            OfferedNextHop::Attached(interface) => self.up(NextHop::Attached(interface)),
            OfferedNextHop::Gateway { interface, address } => self.up(NextHop::Gateway { interface, address }),
            OfferedNextHop::Via(gateway) => self.via(gateway, &[]),
        }
    }

    fn via(&self, gateway: Address, path: &[Address]) -> Shares {
        if path.contains(&gateway) || path.len() >= DEPTH {
            return Shares::new();
        }
        for prefix in self.covering(gateway) {
            let connected = self.offers(prefix);
            let connected = connected.iter().find(|entry| entry.origin == Origin::Connected);
            match connected.map(|entry| self.hops(entry)[0].next_hop) {
                Some(OfferedNextHop::Local(_)) => return Shares::new(),
                Some(OfferedNextHop::Attached(interface)) if !self.down.contains(&interface) => {
                    let address = gateway;
                    return Shares::from([(NextHop::Gateway { interface, address }, 1.0)]);
                }
                _ => {}
            }
        }
        let path = [path, &[gateway]].concat();
        for prefix in self.covering(gateway) {
            if prefix.length() == 0 && !self.by_default_route {
                continue;
            }
            for offer in self.offers(prefix) {
                let shares = self.sum(self.hops(offer), |next_hop| match next_hop {
                    OfferedNextHop::Via(next) => self.via(next, &path),
                    OfferedNextHop::Attached(interface) => self.up(NextHop::Gateway {
                        interface,
                        address: gateway,
                    }),
                    OfferedNextHop::Local(_) => Shares::new(),
                    next_hop => self.direct(next_hop),
                });
                if !shares.is_empty() {
                    return shares;
                }
            }
        }
        Shares::new()
    }

    fn sum(&self, hops: &[WeightedNextHop], lead: impl Fn(OfferedNextHop) -> Shares) -> Shares {
        let mut all = Shares::new();
        for hop in hops {
            for (next_hop, share) in lead(hop.next_hop) {
                *all.entry(next_hop).or_default() += share * f64::from(hop.weight);
            }
        }
        let sum: f64 = all.values().sum();
        all.values_mut().for_each(|share| *share /= sum);
        all
    }

    fn routes(&self) -> BTreeMap<Prefix, Shares> {
        let prefixes: BTreeSet<Prefix> = self.entries.iter().map(|entry| entry.prefix).collect();
        let lead = |prefix: Prefix| {
            self.offers(prefix).into_iter().find_map(|offer| {
                let mut shares = self.sum(self.hops(offer), |next_hop| self.direct(next_hop));
                let drops = |hop: &NextHop| matches!(hop, NextHop::Drop(_));
                if shares.keys().any(|hop| !drops(hop)) {
                    shares.retain(|hop, _| !drops(hop));
                } else {
                    shares = shares.pop_first().into_iter().collect();
                }
                let sum: f64 = shares.values().sum();
                shares.values_mut().for_each(|share| *share /= sum);
                (!shares.is_empty()).then_some(shares)
            })
        };
        prefixes
            .into_iter()
            .filter_map(|prefix| Some((prefix, lead(prefix)?)))
            .collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer(Prefix, Origin, (u8, u32), To),
    Withdraw(Prefix, Origin, u32),
    Change(usize, Vec<WeightedNextHop>),
    Link(u16, bool),
    Replay(Origin),
    Sweep(Origin),
    Publish,
}

const GROUPS: usize = 3;

/// A few nested prefixes, so that their routes depend on each other.
fn prefixes() -> impl Strategy<Value = Prefix> {
    let of = |(bits, length): (u32, u8)| Prefix::new(Address::V4(bits << 28), length);
    (0..16_u32, 0..=6_u8).prop_map(of)
}

fn gateways() -> impl Strategy<Value = Address> {
    (0..16_u32).prop_map(|bits| Address::V4(bits << 28 | 1))
}

fn hops() -> impl Strategy<Value = Vec<WeightedNextHop>> {
    let next_hop = prop_oneof![
        5 => gateways().prop_map(OfferedNextHop::Via),
        2 => (0..3_u16, gateways()).prop_map(|(interface, address)| OfferedNextHop::Gateway { interface, address }),
        1 => (0..3_u16).prop_map(OfferedNextHop::Attached),
        1 => Just(OfferedNextHop::Drop(DropKind::Blackhole)),
    ];
    let hop = (next_hop, 1..4_u8).prop_map(|(next_hop, weight)| WeightedNextHop {
        weight,
        ..WeightedNextHop::new(next_hop)
    });
    proptest::collection::vec(hop, 1..3)
}

fn learned() -> impl Strategy<Value = Origin> {
    prop_oneof![Just(Origin::Static), Just(Origin::Fpm), Just(Origin::Kernel)]
}

fn steps() -> impl Strategy<Value = Step> {
    let rank = || (0..3_u8, 0..2_u32);
    let to = prop_oneof![3 => hops().prop_map(To::Hops), 1 => (0..GROUPS).prop_map(To::Group)];
    let connected = prop_oneof![
        3 => (0..3_u16).prop_map(OfferedNextHop::Attached),
        1 => (0..3_u16).prop_map(OfferedNextHop::Local),
    ];
    let connected = connected.prop_map(|next_hop| To::Hops(vec![WeightedNextHop::new(next_hop)]));
    prop_oneof![
        8 => (prefixes(), learned(), rank(), to).prop_map(|(prefix, origin, rank, to)| Step::Offer(prefix, origin, rank, to)),
        2 => (prefixes(), connected).prop_map(|(prefix, to)| Step::Offer(prefix, Origin::Connected, (0, 0), to)),
        4 => (prefixes(), learned(), 0..3_u32).prop_map(|(prefix, origin, which)| Step::Withdraw(prefix, origin, which)),
        1 => prefixes().prop_map(|prefix| Step::Withdraw(prefix, Origin::Connected, 0)),
        1 => (0..GROUPS, hops()).prop_map(|(group, hops)| Step::Change(group, hops)),
        2 => (0..3_u16, any::<bool>()).prop_map(|(interface, up)| Step::Link(interface, up)),
        1 => learned().prop_map(Step::Replay),
        1 => learned().prop_map(Step::Sweep),
        5 => Just(Step::Publish),
    ]
}

fn compare(model: &Model, table: &Table) -> Result<(), TestCaseError> {
    let expected = model.routes();
    let keys = |routes: &BTreeMap<Prefix, Shares>| -> Vec<(Prefix, Vec<NextHop>)> {
        routes
            .iter()
            .map(|(prefix, shares)| (*prefix, shares.keys().copied().collect()))
            .collect()
    };
    prop_assert_eq!(keys(&expected), keys(&table.0));
    for (prefix, shares) in &expected {
        for (hop, share) in shares {
            let got = table.0[prefix][hop];
            prop_assert!((share - got).abs() < 0.02, "{} {:?}: {} {}", prefix, hop, share, got);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn table_is_as_the_model_says(
        steps in proptest::collection::vec(steps(), 1..60),
        by_default_route in any::<bool>(),
    ) {
        let settings = Settings { by_default_route, ..Settings::default() };
        let (mut rib, mut table) = (Rib::new(settings, [5, 6]), Table::default());
        let mut model = Model { by_default_route, ..Model::default() };
        let groups: Vec<Group> = (0..GROUPS).map(|_| rib.add_group(&[]).unwrap()).collect();
        model.groups = vec![Vec::new(); GROUPS];
        for step in steps.into_iter().chain([Step::Publish]) {
            match step {
                Step::Offer(prefix, origin, rank, to) => {
                    let target = match &to {
                        To::Hops(hops) => Target::Hops(hops),
                        To::Group(group) => Target::Group(groups[*group]),
                    };
                    let offer = Offer { origin, protocol: 0, distance: rank.0, metric: rank.1, target };
                    rib.offer(prefix, &offer, 0).unwrap();
                    let which = if origin == Origin::Static { rank.0.into() } else { rank.1 };
                    if let Some(place) = model.position(prefix, origin, which) {
                        model.entries.remove(place);
                    }
                    model.entries.push(Entry { prefix, origin, rank, to, stale: false });
                }
                Step::Withdraw(prefix, origin, which) => {
                    let place = model.position(prefix, origin, which);
                    prop_assert_eq!(place.is_some(), rib.withdraw(prefix, origin, which));
                    place.map(|place| model.entries.remove(place));
                }
                Step::Change(group, hops) => {
                    rib.change_group(groups[group], &hops).unwrap();
                    model.groups[group] = hops;
                }
                Step::Link(interface, up) => {
                    rib.set_link(interface, up);
                    if up { model.down.remove(&interface); } else { model.down.insert(interface); }
                }
                Step::Replay(origin) => {
                    rib.start_replay(origin);
                    let of_origin = model.entries.iter_mut().filter(|entry| entry.origin == origin);
                    of_origin.for_each(|entry| entry.stale = true);
                }
                Step::Sweep(origin) => {
                    while rib.end_replay(origin, 2) == 2 {}
                    model.entries.retain(|entry| entry.origin != origin || !entry.stale);
                }
                Step::Publish => {
                    rib.publish(&mut table);
                    compare(&model, &table)?;
                }
            }
            let of = |origin: Origin| model.entries.iter().filter(move |entry| entry.origin == origin);
            for origin in Origin::ALL {
                prop_assert_eq!(of(origin).count(), rib.counts().offers[origin as usize]);
                prop_assert_eq!(of(origin).filter(|entry| entry.stale).count(), rib.stale(origin));
            }
            prop_assert_eq!(model.entries.len(), rib.iter().count());
        }
    }
}
