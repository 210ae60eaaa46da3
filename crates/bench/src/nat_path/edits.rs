//! Cost of packets of established sessions while individual rules and routes change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_dpdk::eal::allowed_cores;
use sluice_dpdk::tsc;
use sluice_dpdk::workers::{WorkerError, pin};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::time::Now;
use sluice_engine::session::family::V4;
use sluice_filter::{ChangeResult, MatcherKind, RuleList};
use sluice_nat::rule::{Prefix, Rules, SourceAction, SourceRule};
use sluice_nat::{Pools, RuleId};
use sluice_route::rib::{Offer, OfferedNextHop, Origin, Rib, RibError, Target, WeightedNextHop};
use sluice_route::{Address, Prefix as Destinations};
use sluice_wire::Checksums;

use super::{Bench, capacity, drawn};
use crate::rig::frames::{Hosts, ROUTER_MAC, Random, SEED, Written};
use crate::rig::gateway::Gateway;
use crate::rig::measure::{Direction, With, add_cost, empty, full};
use crate::rig::policy::{Job, Style, denied, filter_rules, memory, plane};
use crate::rig::reference::{Flows, complete, open};
use crate::rows::{Failure, Figure, Named, Row, Runs};

/// Number of translation rules in addition to the rule that all sessions use.
const RULES: usize = 10_000;

const FILTER_RULES: u32 = 20_000;

/// Number of routes in addition to the default route: about as many as in the Internet's routing table.
const ROUTES: u32 = 1 << 20;

/// Next hops that the routes use in turn.
const GATEWAYS: [u32; 2] = [0xc000_02fc, 0xc000_02fd];

/// Number of loops with changes per run; a run must take longer than the revalidation of all sessions.
const LOOPS: usize = 6;

/// Number of loops after the last change, in which every session is drawn several times, so that all sessions are
/// revalidated.
const SETTLING: usize = 4;

/// Kind of changes: rules for addresses in the network of the sessions, or routes, including routes that sessions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Inside {
    /// Translation rules that each apply to one host, as for subscribers' leases and port-mapping requests.
    Hosts,
    /// Translation rules that apply to one host or to a network of up to 4,096 addresses.
    Networks,
    /// Packet filter rules that each apply to one host, as in block lists.
    Filter,
    /// Changes of a route's next hop, as received from a routing daemon.
    Routes,
    /// Changes of routes and of packet filter rules; both kinds have the same rate as when measured alone.
    #[value(name = "filter+routes")]
    FilterAndRoutes,
}

impl Inside {
    /// Number of rules, and number of rule or route changes per second.
    fn rules(self) -> (u32, f64) {
        match self {
            Self::Hosts | Self::Networks => (RULES as u32, 10_000.0),
            Self::Filter => (FILTER_RULES, 1_000.0),
            Self::Routes => (1, 10_000.0),
            Self::FilterAndRoutes => (FILTER_RULES, 11_000.0),
        }
    }

    fn filter_rules(self) -> u32 {
        match self {
            Self::Filter | Self::FilterAndRoutes => FILTER_RULES,
            Self::Hosts | Self::Networks | Self::Routes => 0,
        }
    }

    fn editor(self, plane: &mut ControlPlane) -> Result<Box<dyn Edit>, Failure> {
        Ok(match self {
            Self::Hosts | Self::Networks => Box::new(Edits::new(plane, self, RULES)),
            Self::Filter => Box::new(FilterEdits::new(plane)?),
            Self::Routes => Box::new(RouteEdits::new(plane)?),
            Self::FilterAndRoutes => Box::new(Both {
                filter: FilterEdits::new(plane)?,
                routes: RouteEdits::new(plane)?,
                turn: 0,
            }),
        })
    }
}

/// A source of changes of rules or routes.
trait Edit: Send {
    /// Make one change.
    fn edit(&mut self, plane: &mut ControlPlane);
    /// Does additional periodic work.
    fn rest(&mut self, _: &mut ControlPlane) {}
}

/// The control thread: makes changes at a constant rate until `stop` is set, and starts the revalidation of sessions.
/// Returns the cycles of each change.
fn keep_on(
    editor: &mut dyn Edit,
    plane: &mut ControlPlane,
    now: impl Fn() -> Now,
    per_second: f64,
    stop: &AtomicBool,
) -> Vec<f64> {
    let began = Instant::now();
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        // The editor sleeps, like the control thread, because it may share a physical core with the worker.
        std::thread::sleep(Duration::from_millis(1));
        let due = (began.elapsed().as_secs_f64() * per_second) as usize;
        while took.len() < due {
            let start = tsc::now();
            editor.edit(plane);
            took.push((tsc::now() - start) as f64);
        }
        editor.rest(plane);
        if plane.publish_changes(now()).is_some() {
            plane.collect();
        }
    }
    took
}

/// Changes of the next hop of routes, including the routes of the sessions.
struct RouteEdits {
    random: Random,
    by: Vec<u8>,
}

impl RouteEdits {
    fn new(plane: &mut ControlPlane) -> Result<Self, Failure> {
        let routes = Self {
            random: Random(2_463_534_242),
            by: vec![0; ROUTES as usize],
        };
        let mut refused = 0;
        plane.change_routes(0, |rib| {
            for number in 0..ROUTES {
                refused += u32::from(routes.offer(rib, number).is_err());
            }
        });
        match refused {
            0 => Ok(routes),
            _ => Err(format!("{refused} routes are refused").into()),
        }
    }

    /// Inserts a /24 route with its current next hop; inside hosts are in none of these networks.
    fn offer(&self, rib: &mut Rib, number: u32) -> Result<(), RibError> {
        let first = match number >> 16 {
            0 => 8,
            others => 10 + others,
        };
        let hops = [WeightedNextHop::new(OfferedNextHop::Gateway {
            interface: 1,
            address: Address::V4(GATEWAYS[usize::from(self.by[number as usize])]),
        })];
        let offer = Offer {
            origin: Origin::Fpm,
            protocol: 186,
            distance: 20,
            metric: 0,
            target: Target::Hops(&hops),
        };
        let destinations = Destinations::new(Address::V4(first << 24 | (number & 0xffff) << 8), 24);
        rib.offer(destinations, &offer, 0)
    }
}

impl Edit for RouteEdits {
    fn edit(&mut self, plane: &mut ControlPlane) {
        let number = self.random.below(u64::from(ROUTES));
        self.by[number as usize] ^= 1;
        // Other routes already use the next hop, so no neighbour entry must be added.
        plane.change_routes(0, |rib| self.offer(rib, number).unwrap_or(()));
    }
}

/// Makes ten route changes for each filter change.
struct Both {
    filter: FilterEdits,
    routes: RouteEdits,
    turn: usize,
}

impl Edit for Both {
    fn edit(&mut self, plane: &mut ControlPlane) {
        self.turn = (self.turn + 1) % 11;
        match self.turn {
            0 => self.filter.edit(plane),
            _ => self.routes.edit(plane),
        }
    }

    fn rest(&mut self, plane: &mut ControlPlane) {
        self.filter.rest(plane);
    }
}

/// Filter rules that are inserted before all other rules, and removed.
struct FilterEdits {
    list: RuleList<()>,
    random: Random,
    there: usize,
}

impl FilterEdits {
    /// Creates the changes, and replaces the plane's filter with an editable filter that has the same rules.
    fn new(plane: &mut ControlPlane) -> Result<Self, Failure> {
        let list = filter_rules(FILTER_RULES as usize, MatcherKind::Best, true, 1)?;
        plane.replace_filter(list.filters().clone());
        Ok(Self {
            list,
            random: Random(2_463_534_242),
            there: 0,
        })
    }
}

impl Edit for FilterEdits {
    fn edit(&mut self, plane: &mut ControlPlane) {
        let (rule, change) = match self.there < 64 {
            true => {
                let rule = denied(0x0a00_0000 | self.random.below(1 << 24));
                self.there += 1;
                (Some(rule.clone()), self.list.insert(0, rule, ()))
            }
            false => {
                let index = self.random.below(self.there as u64) as usize;
                self.there -= 1;
                (self.list.compiled(index).cloned(), self.list.remove(index))
            }
        };
        rule.iter().for_each(|rule| plane.filter_changed(rule));
        if change == Ok(ChangeResult::Rebuilt) {
            plane.replace_filter(self.list.filters().clone());
        }
    }

    fn rest(&mut self, plane: &mut ControlPlane) {
        let Some(fold) = self.list.begin_rebuild() else { return };
        let built = fold.build().and_then(|built| self.list.end_rebuild(built));
        if built == Ok(true) {
            plane.replace_filter(self.list.filters().clone());
        }
    }
}

/// Translation rules that are added and removed.
pub struct Edits {
    inside: Inside,
    rules: Rules<u32>,
    pools: Pools<u32>,
    random: Random,
    there: Vec<RuleId>,
    most: usize,
}

impl Edits {
    /// Creates the changes of at most `most` translation rules, in addition to the rules of the plane.
    pub fn new(plane: &mut ControlPlane, inside: Inside, most: usize) -> Self {
        let (rules, pools) = plane.edit_rules::<V4, _>(|nat| (nat.rules.clone(), nat.pools.clone()));
        let mut edits = Self {
            inside,
            rules,
            pools,
            random: Random(2_463_534_242),
            there: Vec::new(),
            most,
        };
        while edits.there.len() < most {
            edits.add();
        }
        edits
    }

    /// Adds a rule with the same action as the rule that all sessions use; draws again if the rule already exists.
    fn add(&mut self) {
        let length = match self.inside {
            Inside::Networks => 20 + self.random.below(13) as u8,
            _ => 32,
        };
        let host = 0x0a00_0000 | self.random.below(1 << 24);
        let inside = Prefix {
            address: (u64::from(host) & u64::MAX << (32 - length)) as u32,
            length,
        };
        let rule = SourceRule {
            outside: Some(1),
            ..SourceRule::of(inside, SourceAction::Pool(0))
        };
        if let Ok(added) = self.rules.add_source(&rule, &self.pools) {
            self.there.push(added);
        }
    }
}

impl Edit for Edits {
    /// Adds or removes a rule, so that the number of rules remains about constant.
    fn edit(&mut self, plane: &mut ControlPlane) {
        if self.there.len() < self.most {
            self.add();
        } else {
            let place = self.random.below(self.there.len() as u64) as usize;
            self.rules.remove_source(self.there.swap_remove(place));
        }
        plane.edit_rules::<V4, _>(|_| ());
    }
}

/// Measures the same load without and with changes, in turn.
pub fn edits(bench: &mut Bench<'_, '_>, sessions: u32, inside: Inside) -> Result<(), Failure> {
    let (rules, per_second) = inside.rules();
    let style = Style {
        filter_rules: inside.filter_rules(),
        ..Style::SESSIONS
    };
    let plane = plane(Job::Translate, style, capacity(sessions))?;
    let mut memory = memory(&plane)?;
    let mut gateway = bench.gateway(Job::Translate, plane, &mut memory)?;
    for address in GATEWAYS {
        gateway.know((1, Address::V4(address), ROUTER_MAC))?;
    }
    let publics = complete(open(&mut gateway, Hosts::Sixteen, sessions, |packet, _| packet)?)?;
    let flows = Flows::of(Hosts::Sixteen, &publics);
    let mut editor = inside.editor(&mut gateway.plane)?;
    let control = allowed_cores().get(1).copied();
    let Gateway {
        mut plane,
        mut rounds,
        mut source,
        devices,
    } = gateway;
    // Sessions are revalidated for the new routes before the measurement.
    plane.publish_changes(rounds.clock.now());
    let (mut random, direction, mut runs) = (Random(SEED), Direction::Both, Runs::default());
    for _ in 0..bench.runs {
        let mut draw = |port| drawn::<Written>(&mut random, sessions, flows, port);
        let base = empty(&mut source, direction, Checksums::Vouched, &mut draw);
        let clock = rounds.clock;
        let mut measure = |loops| -> Result<(f64, u64), Failure> {
            let (mut cycles, mut sent) = (0.0, 0);
            for _ in 0..loops {
                let mut path = With(&mut source, || _ = rounds.round());
                let looped = full(&mut path, direction, Checksums::Vouched, &mut draw)?;
                flows.verify_short::<Written>(&looped.samples)?;
                (cycles, sent) = (cycles + looped.cycles, sent + looped.sent);
            }
            Ok((cycles / loops as f64, sent))
        };
        measure(SETTLING)?;
        let (quiet, _) = measure(LOOPS)?;
        let before = plane.counters()[0].sessions_revalidated.get();
        let (stop, began) = (AtomicBool::new(false), tsc::now());
        let (measured, took) = std::thread::scope(|scope| {
            let editor = scope.spawn(|| {
                control.map_or(Ok(()), pin)?;
                Ok::<_, WorkerError>(keep_on(&mut *editor, &mut plane, || clock.now(), per_second, &stop))
            });
            let measured = measure(LOOPS);
            stop.store(true, Ordering::Relaxed);
            (measured, editor.join())
        });
        let (busy, packets) = measured?;
        let seconds = (tsc::now() - began) as f64 / tsc::frequency() as f64;
        let took = took.map_err(|_| "the thread that changes rules failed")??;
        let revised = plane.counters()[0].sessions_revalidated.get() - before;
        add_cost(&mut runs, busy, base);
        runs.extend([
            ("cycles_without_edits", quiet - base),
            ("added_percent", (busy - quiet) / (quiet - base) * 100.0),
            ("edits_per_s", took.len() as f64 / seconds),
            ("edit_us", Figure::of(&took).median / tsc::frequency() as f64 * 1e6),
            ("revised_per_packet", revised as f64 / packets as f64),
        ]);
    }
    let row = Row::new("edits")
        .key("sessions", sessions)
        .key("rules", rules)
        .key("edits", inside.name());
    let row = row.key("family", 4).key("direction", direction.name());
    let row = row.key("mapping", style.mapping()).key("checksums", "vouched");
    bench.row(row.runs(&runs));
    drop((rounds, plane));
    source.close();
    drop(devices.close());
    Ok(())
}
