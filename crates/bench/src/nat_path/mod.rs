//! `nat-path`: in-memory cost per packet of one core, compared with the theoretical limit.

mod edits;
pub mod probe;
mod shapes;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::io::BURST_SIZE;
use sluice_engine::packet::time::Now;
use sluice_engine::worker::request::{Cursor, SessionInfo};
use sluice_wire::Checksums;

use crate::rig::frames::{Frame, Hosts, Random, SEED, Written, Written6, data};
use crate::rig::gateway::Gateway;
use crate::rig::measure::{self, Direction, PACKETS, With, add_cost, add_stages, checksums_name, empty, full};
use crate::rig::policy::{Job, Style, memory, plane};
use crate::rig::reference::{Flows, Publics, complete, open};
use crate::rig::{self, cross};
use crate::rows::{Failure, Named, Row, Run, Runs};
use edits::{Edits, Inside};
use probe::Probe;

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Plain forwarding: receive, rewrite MAC addresses, transmit.
    L2fwd,
    /// Forwarding by routes, without sessions.
    Forward,
    /// Packets of established sessions, compared with the limit.
    Established,
    /// Packets of established sessions while the session table is being listed.
    Listing,
    /// Packets of established sessions while rules change.
    Edits,
    /// Packets that each open a session.
    New,
    /// The traffic shapes of CSIT: inside hosts with 63 flows each.
    Shapes,
}

/// What to measure; everything by default.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct NatPathArguments {
    /// Measures only this case.
    #[arg(long, value_name = "CASE")]
    only: Option<Case>,
    /// Measures only this number of sessions; without --only, only in the established case.
    #[arg(long, value_name = "N")]
    sessions: Option<u32>,
    /// Measures only this address family in the established case.
    #[arg(long, value_name = "FAMILY")]
    family: Option<Family>,
    /// Apply a packet filter with this number of rules to the first packets of flows, in the established and the new
    /// case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    filter_rules: u32,
    /// Switch the express lane off, so that the graph processes every packet.
    #[arg(long)]
    without_express: bool,
    /// Maximum number of packets that the worker receives together.
    #[arg(long, value_name = "PACKETS", default_value_t = BURST_SIZE)]
    burst: usize,
}

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// IPv4.
    #[value(name = "4")]
    V4,
    /// IPv6.
    #[value(name = "6")]
    V6,
}

/// By default, IPv6 is measured only with at most this number of sessions.
const MAX_V6: u32 = 64_000;

/// State common to all cases: DPDK, the number of runs, and the number of the next rig.
struct Bench<'r, 'b> {
    eal: &'static Eal,
    runs: usize,
    rigs: u32,
    /// Whether the express lane is on.
    express: bool,
    /// Maximum number of packets that the worker receives together.
    burst: usize,
    run: &'r mut Run<'b>,
}

pub fn run(run: &mut Run<'_>, arguments: &NatPathArguments) -> Result<(), Failure> {
    let (quick, runs) = (run.quick, if run.quick { 3 } else { 7 });
    let mut bench = Bench {
        eal: rig::start(1)?,
        runs,
        rigs: 1,
        express: !arguments.without_express,
        burst: arguments.burst,
        run,
    };
    let only = arguments.only.or(arguments.sessions.and(Some(Case::Established)));
    let wanted = |case| only.is_none_or(|only| only == case);
    if wanted(Case::L2fwd) {
        bench.l2fwd()?;
    }
    if wanted(Case::Forward) {
        bench.forward()?;
    }
    if wanted(Case::Established) {
        let sizes: &[u32] = match &arguments.sessions {
            Some(one) => std::slice::from_ref(one),
            None if quick => &[8_000, 64_000],
            None => &[8_000, 64_000, 1_000_000, 16_000_000],
        };
        for &sessions in sizes {
            if arguments.family != Some(Family::V6) {
                bench.established::<Written>(Job::Translate, sessions, arguments.filter_rules)?;
            }
            if arguments
                .family
                .map_or(sessions <= MAX_V6, |family| family == Family::V6)
            {
                bench.established::<Written6>(Job::Translate6, sessions, arguments.filter_rules)?;
            }
        }
    }
    let sessions = arguments.sessions.unwrap_or(if quick { 64_000 } else { 1_000_000 });
    if wanted(Case::Listing) {
        bench.listing(sessions)?;
    }
    if wanted(Case::Edits) {
        for &inside in <Inside as clap::ValueEnum>::value_variants() {
            edits::edits(&mut bench, sessions, inside)?;
        }
    }
    if wanted(Case::Shapes) {
        let count = if quick { 1 } else { shapes::HOSTS.len() };
        for &hosts in &shapes::HOSTS[..count] {
            shapes::shape(&mut bench, hosts, Style::MAPPINGS)?;
            shapes::shape(&mut bench, hosts, Style::OVERLAP)?;
        }
        shapes::crowded(&mut bench, shapes::HOSTS[0])?;
    }
    if wanted(Case::New) {
        let filter_rules = arguments.filter_rules;
        let filtered = |style: Style| Style {
            filter_rules,
            short: true,
            ..style
        };
        for rules in [1, 1_000, 10_000] {
            bench.created(sessions, filtered(Style::SESSIONS), rules)?;
        }
        bench.created(sessions, filtered(Style::MAPPINGS), 1)?;
    }
    Ok(())
}

/// Session capacity, with a reserve because sessions are not distributed evenly over shards.
fn capacity(sessions: u32) -> u32 {
    sessions + sessions / 16 + 16 * 1024
}

/// Returns a packet of a random flow.
#[inline(always)]
fn drawn<F: From<Written>>(random: &mut Random, sessions: u32, flows: Flows<'_>, port: u16) -> F {
    flows.packet(random.below(sessions.into()), port).into()
}

impl Bench<'_, '_> {
    fn next(&mut self) -> u32 {
        self.rigs += 1;
        self.rigs
    }

    /// Creates a gateway, with or without the express lane.
    fn gateway<'m>(&mut self, job: Job, plane: ControlPlane, memory: &'m mut Region) -> Result<Gateway<'m>, Failure> {
        let mut ends = rig::join(self.eal, self.next(), 2, 8192)?;
        ends[1].io.limit_bursts(self.burst);
        let mut gateway = Gateway::with_neighbours(ends, job, plane, memory)?;
        gateway.rounds.worker.set_lane(self.express);
        gateway.rounds.repeats = BURST_SIZE.div_ceil(self.burst.max(1));
        Ok(gateway)
    }

    fn row(&mut self, row: Row) {
        let row = if self.express { row } else { row.key("express", "off") };
        let row = match self.burst {
            BURST_SIZE => row,
            burst => row.key("burst", burst),
        };
        (self.run.row)(row);
    }

    fn l2fwd(&mut self) -> Result<(), Failure> {
        let [mut source, mut other] = rig::join(self.eal, self.next(), 2, 8192)?;
        let (mut random, publics, mut runs) = (Random(SEED), Publics::new(), Runs::default());
        let flows = Flows::of(Hosts::Sixteen, &publics);
        for _ in 0..self.runs {
            let mut path = With(&mut source, || _ = cross(&mut other.io, 0));
            let draw = |port| drawn::<Written>(&mut random, 8_000, flows, port);
            measure::run(&mut path, Direction::Up, Checksums::Vouched, draw, &mut runs)?;
        }
        self.row(
            Row::new("l2fwd")
                .key("direction", "up")
                .key("checksums", "vouched")
                .runs(&runs),
        );
        [other, source].into_iter().for_each(rig::Source::close);
        Ok(())
    }

    fn forward(&mut self) -> Result<(), Failure> {
        let plane = plane(Job::Forward, Style::SESSIONS, 16)?;
        let mut memory = memory(&plane)?;
        let mut gateway = self.gateway(Job::Forward, plane, &mut memory)?;
        let publics = Publics::new();
        let flows = Flows::of(Hosts::Sixteen, &publics);
        for checksums in [Checksums::Vouched, Checksums::Unverified] {
            let (mut random, mut runs) = (Random(SEED), Runs::default());
            for _ in 0..self.runs {
                let draw = |port| drawn::<Written>(&mut random, 8_000, flows, port);
                measure::run(&mut gateway, Direction::Up, checksums, draw, &mut runs)?;
            }
            let row = Row::new("forward").key("direction", "up").key("family", 4);
            self.row(row.key("checksums", checksums_name(checksums)).runs(&runs));
        }
        gateway.close();
        Ok(())
    }

    fn established<F: Frame + From<Written>>(
        &mut self,
        job: Job,
        sessions: u32,
        filter_rules: u32,
    ) -> Result<(), Failure> {
        let (capacity, is_v6) = (capacity(sessions), F::FAMILY == 6);
        let plane = plane(
            job,
            Style {
                filter_rules,
                ..Style::SESSIONS
            },
            capacity,
        )?;
        let lines = plane.lines();
        let lines = if is_v6 { lines.sessions6 } else { lines.sessions4 };
        let bytes = Gateway::bytes_per_session(&plane, lines, capacity);
        let mut memory = memory(&plane)?;
        let backing = memory.backing().to_string();
        let mut gateway = self.gateway(job, plane, &mut memory)?;
        let publics = complete(open(&mut gateway, Hosts::Sixteen, sessions, |packet, _| {
            F::from(packet)
        })?)?;
        let flows = Flows::of(Hosts::Sixteen, &publics);
        let mut limit_memory = probe::memory(sessions as usize)?;
        let mut limit = Probe::new(&mut limit_memory, sessions as usize);
        let directions = [Direction::Up, Direction::Down, Direction::Both];
        let (mut random, mut runs, mut limits) = (Random(SEED), [(); 3].map(|()| Runs::default()), Runs::default());
        let (before, mut sent) = (gateway.session_packets()?, 0);
        for _ in 0..self.runs {
            let [source, cost] = limit.cost(PACKETS / 32);
            add_cost(&mut limits, source + cost, source);
            for (&direction, runs) in directions.iter().zip(&mut runs) {
                let draw = |port| drawn::<F>(&mut random, sessions, flows, port);
                let looped = measure::run_gateway(&mut gateway, direction, Checksums::Vouched, draw, runs)?;
                flows.verify_short::<F>(&looped.samples)?;
                sent += looped.sent;
            }
        }
        let counted = gateway.session_packets()? - before;
        if counted != sent {
            return Err(format!("{sent} packets went through, the sessions counted {counted}").into());
        }
        let common = |case| {
            let row = Row::new(case).key("sessions", sessions).key("family", F::FAMILY);
            row.key("filter_rules", filter_rules)
        };
        // The limit is only measured with IPv4 records.
        if !is_v6 {
            self.row(common("probe").key("direction", "up").runs(&limits));
        }
        let length = F::from(data(Hosts::Sixteen, 0, None)).length();
        for (direction, runs) in directions.into_iter().zip(&runs) {
            let row = common("established").key("direction", direction.name());
            let row = row
                .key("mapping", Style::SESSIONS.mapping())
                .key("checksums", "vouched");
            let row = row.key("memory", backing.clone()).key("bytes", length + 4);
            self.row(row.runs(runs).figure("bytes_per_session", &[bytes]));
        }
        gateway.close();
        Ok(())
    }

    /// Measures the same load without and with a listing in progress, in turn. All runs together list as many sessions
    /// as exist.
    fn listing(&mut self, sessions: u32) -> Result<(), Failure> {
        let plane = plane(Job::Translate, Style::SESSIONS, capacity(sessions))?;
        let mut memory = memory(&plane)?;
        let backing = memory.backing().to_string();
        let mut gateway = self.gateway(Job::Translate, plane, &mut memory)?;
        let publics = complete(open(&mut gateway, Hosts::Sixteen, sessions, |packet, _| packet)?)?;
        let flows = Flows::of(Hosts::Sixteen, &publics);
        let (mut random, direction, mut runs) = (Random(SEED), Direction::Both, Runs::default());
        let mut list = List {
            cursor: Cursor::default(),
            spare: Some(Vec::with_capacity(ANSWER)),
            listed: 0,
        };
        for _ in 0..self.runs {
            let mut draw = |port| drawn::<Written>(&mut random, sessions, flows, port);
            let base = empty(&mut gateway.source, direction, Checksums::Vouched, &mut draw);
            let begun = list.listed;
            let (mut quiet, mut busy, mut turns, mut packets) = (0.0, 0.0, 0u32, 0);
            while list.listed - begun < u64::from(sessions).div_ceil(self.runs as u64) {
                // Each measurement comes first equally often, so that a drift of the machine's speed favours neither.
                for is_listing in [turns % 2 == 0, turns % 2 != 0] {
                    let mut path = Listed {
                        gateway: &mut gateway,
                        list: &mut list,
                        is_listing,
                    };
                    let looped = full(&mut path, direction, Checksums::Vouched, &mut draw)?;
                    flows.verify_short::<Written>(&looped.samples)?;
                    match is_listing {
                        true => (busy, packets) = (busy + looped.cycles, packets + looped.sent),
                        false => quiet += looped.cycles,
                    }
                    // Finish the listing here, so that no listing is in progress in the loop without it; sessions
                    // listed here are not counted.
                    let listed = list.listed;
                    while is_listing && list.spare.is_none() {
                        gateway.round();
                        list.take(&mut gateway);
                    }
                    list.listed = listed;
                }
                turns += 1;
            }
            let (quiet, busy) = (quiet / f64::from(turns), busy / f64::from(turns));
            add_cost(&mut runs, busy, base);
            runs.add("cycles_without_listing", quiet - base);
            runs.add("added_percent", (busy - quiet) / (quiet - base) * 100.0);
            runs.add(
                "packets_per_listed_session",
                packets as f64 / (list.listed - begun) as f64,
            );
        }
        let row = Row::new("listing").key("sessions", sessions).key("family", 4);
        let row = row
            .key("direction", direction.name())
            .key("mapping", Style::SESSIONS.mapping());
        self.row(row.key("checksums", "vouched").key("memory", backing).runs(&runs));
        gateway.close();
        Ok(())
    }

    /// Measures new sessions at a constant number of open sessions: each packet opens a session, and equally many
    /// sessions end.
    fn created(&mut self, sessions: u32, style: Style, rules: usize) -> Result<(), Failure> {
        let addresses = style.blocks.map(|_| sessions / 32 / 512 + 1);
        let mut plane = plane(
            Job::Translate,
            Style { addresses, ..style },
            sessions + sessions / 4 + 16 * 1024,
        )?;
        let networks = Edits::new(&mut plane, Inside::Networks, rules - 1);
        plane.collect();
        let mut memory = memory(&plane)?;
        let mut gateway = self.gateway(Job::Translate, plane, &mut memory)?;
        // Time advances by this much per session, so that the requested number of sessions is opened within the timeout
        // of 120 s.
        let step = 120_000_000_000 / u64::from(sessions);
        let (mut flow, space, mut clock) = (0u32, sessions * 4, gateway.now().nanoseconds);
        let (publics, mut runs) = (Publics::new(), Runs::default());
        // With blocks of 64 ports, each host has open sessions for half of a block's ports.
        let hosts = match style.blocks {
            Some(_) => Hosts::InTurn(sessions / 32),
            None => Hosts::Sixteen,
        };
        for turn in 0..=self.runs {
            let mut random = Random(1);
            let mut again = |port| drawn::<Written>(&mut random, space, Flows::of(hosts, &publics), port).first();
            let base = empty(&mut gateway.source, Direction::Up, Checksums::Vouched, &mut again);
            let opening = |_: u16| {
                flow = (flow + 1) % space;
                data(hosts, flow, None).first()
            };
            let counters = gateway.plane.counters()[0].clone();
            let before = (counters.sessions_created.get(), counters.sessions_ended.get());
            let spent = gateway.stages();
            let worker = &mut gateway.rounds.worker;
            let mut path = With(&mut gateway.source, || {
                clock += 64 * step;
                worker.round(Now::at(clock));
            });
            let looped = full(&mut path, Direction::Up, Checksums::Vouched, opening)?;
            let created = counters.sessions_created.get() - before.0;
            let ended = counters.sessions_ended.get() - before.1;
            // The first turn fills the table and touches all pages of its memory.
            if turn == 0 {
                continue;
            }
            if created != looped.sent || created.abs_diff(ended) * 20 > created {
                return Err(format!("{} opened, {created} created, {ended} ended", looped.sent).into());
            }
            add_stages(&mut runs, &gateway, spent, looped.sent);
            add_cost(&mut runs, looped.cycles, base);
            let rate = sluice_dpdk::tsc::frequency() as f64 / (looped.cycles - base);
            runs.add("sessions_per_s", rate);
        }
        let row = Row::new("new")
            .key("sessions", sessions)
            .key("family", 4)
            .key("direction", "up");
        let row = row
            .key("mapping", style.mapping())
            .key("port_block", style.blocks.unwrap_or(0));
        let row = row.key("rules", rules).key("filter_rules", style.filter_rules);
        self.row(row.runs(&runs));
        drop(networks);
        gateway.close();
        Ok(())
    }
}

/// Maximum number of sessions per reply to a listing request.
const ANSWER: usize = 4096;

/// A listing that is requested in parts and starts again at its end.
struct List {
    cursor: Cursor,
    /// Memory for the next reply, while no request is pending.
    spare: Option<Vec<SessionInfo>>,
    listed: u64,
}

impl List {
    fn take(&mut self, gateway: &mut Gateway<'_>) {
        if let Some((next, sessions)) = gateway.listed() {
            self.listed += sessions.len() as u64;
            self.cursor = next.unwrap_or_default();
            self.spare = Some(sessions);
        }
    }
}

/// A gateway with or without a listing of its sessions in progress.
struct Listed<'g, 'm> {
    gateway: &'g mut Gateway<'m>,
    list: &'g mut List,
    is_listing: bool,
}

impl measure::Path for Listed<'_, '_> {
    fn source(&mut self) -> &mut rig::Source {
        &mut self.gateway.source
    }

    fn round(&mut self) {
        if let Some(mut into) = self.list.spare.take_if(|_| self.is_listing) {
            into.clear();
            let _ = self.gateway.list(self.list.cursor, into);
        }
        self.gateway.round();
        if self.is_listing {
            self.list.take(self.gateway);
        }
    }
}
