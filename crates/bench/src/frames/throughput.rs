//! In-memory cost of packets of each size on one core, and the additional cost of VLAN tags and a virtual MAC per
//! subscriber site.

use sluice_dpdk::eal::Eal;
use sluice_engine::control::plane::ControlPlane;
use sluice_nat::sites::SiteWriter;
use sluice_wire::Checksums;

use super::{FLOWS, Failure, FramesArguments, Model, STYLE, on_wires, row};
use crate::rig::frames::{Filled, Filling, Hosts, Random, SEED};
use crate::rig::gateway::Gateway;
use crate::rig::lanes::Middle;
use crate::rig::measure::{Direction, STAGES, With, checksums_name, run as run_path, run_gateway};
use crate::rig::policy::{Job, Layout, memory, plane, policy, route_set, routes};
use crate::rig::reference::{Flows, Publics, complete, open};
use crate::rig::sites::{Homes, dressed};
use crate::rig::{L2fwd, Source, join};
use crate::rows::{Named, Row, Run, Runs, pairs};

/// A forwarder of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Sluice,
    L2fwd,
}

/// What the source does with the payload, in addition to writing headers and tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Payload {
    /// The source writes the payload, as a network card does. With large frames, these writes evict headers from the
    /// caches; the source's time, which is subtracted, is then most of the loop's time.
    Written,
    /// The payload remains in the buffers from the previous case.
    Kept,
}

/// A row and its runs.
#[derive(Clone, Debug)]
struct Case {
    by: By,
    bytes: usize,
    direction: Direction,
    checksums: Checksums,
    payload: Payload,
    runs: Runs,
}

impl Case {
    fn new(by: By, bytes: usize, direction: Direction, checksums: Checksums, payload: Payload) -> Self {
        Self {
            by,
            bytes,
            direction,
            checksums,
            payload,
            runs: Runs::default(),
        }
    }

    /// A case of Sluice with payloads written by the source and verified by the network card.
    fn plain(bytes: usize, direction: Direction) -> Self {
        Self::new(By::Sluice, bytes, direction, Checksums::Vouched, Payload::Written)
    }

    fn row(&self) -> Row {
        let row = row(&self.by.name(), self.bytes, self.direction)
            .key("model", Model::RunToCompletion.name())
            .key("cores", 1)
            .key("source", "subtracted")
            .key("checksums", checksums_name(self.checksums))
            .key("payload", self.payload.name())
            .runs(&self.runs);
        let shares = [(10, "share_of_10g"), (25, "share_of_25g"), (100, "share_of_100g")];
        on_wires(row, self.bytes, self.direction, &shares)
    }
}

/// A gateway and its flows, which are flows of hosts or of sites.
struct Side<'m> {
    gateway: Gateway<'m>,
    hosts: Hosts,
    homes: Option<Homes>,
    count: u32,
    publics: Publics,
    random: Random,
    /// Packets counted by the sessions when all flows were open, and packets translated since then.
    before: u64,
    translated: u64,
}

impl<'m> Side<'m> {
    fn new(mut gateway: Gateway<'m>, hosts: Hosts, count: u32, homes: Option<Homes>) -> Result<Self, Failure> {
        let filling = Filling::new(64);
        let frame = |packet, inside| dressed(homes, packet, inside, |packet| Filled::new(packet, &filling));
        let publics = complete(open(&mut gateway, hosts, count, frame)?)?;
        let before = gateway.session_packets()?;
        let random = Random(SEED);
        Ok(Self {
            gateway,
            hosts,
            homes,
            count,
            publics,
            random,
            before,
            translated: 0,
        })
    }

    fn run(&mut self, case: &mut Case) -> Result<(), Failure> {
        let (filling, kept, homes) = (Filling::new(case.bytes), case.payload == Payload::Kept, self.homes);
        let flows = Flows {
            homes,
            ..Flows::of(self.hosts, &self.publics)
        };
        let (random, count) = (&mut self.random, self.count);
        let draw = |port: u16| {
            let packet = flows.packet(random.below(count.into()), port);
            dressed(homes, packet, port & 1 == 0, |packet| Filled {
                kept,
                ..Filled::new(packet, &filling)
            })
        };
        let looped = run_gateway(&mut self.gateway, case.direction, case.checksums, draw, &mut case.runs)?;
        self.translated += looped.sent;
        flows.verify(4, &looped.samples, |number, transport| {
            filling.payload(number.into(), transport)
        })
    }

    /// Check that every output packet was counted by a session.
    fn close(mut self) -> Result<(), Failure> {
        let (counted, sent) = (self.gateway.session_packets()? - self.before, self.translated);
        self.gateway.close();
        match counted == sent {
            true => Ok(()),
            false => Err(format!("{sent} packets went through, the sessions counted {counted}").into()),
        }
    }
}

/// `l2fwd`: two connected ports and a source.
struct Plain {
    source: Source,
    plain: L2fwd,
    random: Random,
}

impl Plain {
    fn run(&mut self, case: &mut Case) -> Result<(), Failure> {
        let (filling, kept) = (Filling::new(case.bytes), case.payload == Payload::Kept);
        let publics = vec![(0xc612_0001, 1024); FLOWS as usize];
        let (random, flows) = (&mut self.random, Flows::of(Hosts::Sixteen, &publics));
        let draw = |port| Filled {
            kept,
            ..Filled::new(flows.packet(random.below(FLOWS.into()), port), &filling)
        };
        self.plain.direction = case.direction;
        let mut path = With(&mut self.source, || _ = self.plain.round());
        let looped = run_path(&mut path, case.direction, case.checksums, draw, &mut case.runs)?;
        match looped.samples.iter().find(|sample| sample.len() != filling.length()) {
            None => Ok(()),
            Some(short) => Err(format!("{} bytes came out", short.len()).into()),
        }
    }
}

/// Cases for every size, direction and checksum setting; `l2fwd` ignores the checksum setting. A case with kept
/// payloads uses the payloads that the previous case wrote.
fn cases(arguments: &FramesArguments, quick: bool) -> Vec<Case> {
    let kinds = [
        (By::L2fwd, Checksums::Vouched, Payload::Written),
        (By::L2fwd, Checksums::Vouched, Payload::Kept),
        (By::Sluice, Checksums::Unverified, Payload::Written),
        (By::Sluice, Checksums::Vouched, Payload::Written),
        (By::Sluice, Checksums::Vouched, Payload::Kept),
    ];
    let mut cases = Vec::new();
    for direction in arguments.directions() {
        for bytes in arguments.all_sizes(quick) {
            cases.extend(kinds.map(|(by, checksums, payload)| Case::new(by, bytes, direction, checksums, payload)));
        }
    }
    cases
}

/// Measures all cases, each once per run, so that a disturbance affects all of them.
pub fn run(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    let plane = plane(Job::Translate, STYLE, FLOWS + FLOWS / 16 + 16 * 1024)?;
    let mut memory = memory(&plane)?;
    let gateway = Gateway::new(eal, 1, Job::Translate, plane, &mut memory)?;
    let mut side = Side::new(gateway, Hosts::Sixteen, FLOWS, None)?;
    let [source, Source { io, devices }] = join(eal, 2, 2, 8192)?;
    let (direction, random) = (Direction::Both, Random(SEED));
    let plain = L2fwd { io, direction };
    let mut plain = Plain { source, plain, random };
    let mut cases = cases(arguments, run.quick);
    for _ in 0..if run.quick { 3 } else { 7 } {
        for case in &mut cases {
            match case.by {
                By::Sluice => side.run(case)?,
                By::L2fwd => plain.run(case)?,
            }
        }
    }
    side.close()?;
    rows(&cases).into_iter().for_each(|row| (run.row)(row));
    drop(plain.plain);
    plain.source.close();
    drop(devices.close());
    Ok(())
}

fn rows(cases: &[Case]) -> Vec<Row> {
    let smallest = cases.iter().map(|case| case.bytes).min().unwrap_or(0);
    let costs = |case: &Case, by, bytes| {
        let found = cases.iter().find(|other| {
            let checksums = by == By::L2fwd || other.checksums == case.checksums;
            let same = other.direction == case.direction && other.payload == case.payload;
            other.by == by && other.bytes == bytes && same && checksums
        });
        found.map(|found| found.runs.of("cycles_per_packet"))
    };
    // Additional cycles per packet compared with the smallest frames, for each run.
    let growth = |case: &Case, by| {
        let (small, large) = (costs(case, by, smallest)?, costs(case, by, case.bytes)?);
        Some(pairs(large, small, |large, small| large - small))
    };
    let with = |case: &Case| {
        let Some(own) = growth(case, case.by) else {
            return case.row();
        };
        let row = case.row().figure("growth_cycles", &own);
        match growth(case, By::L2fwd).filter(|_| case.by == By::Sluice) {
            Some(device) => row.figure("growth_beyond_l2fwd", &pairs(&own, &device, |own, device| own - device)),
            None => row,
        }
    };
    cases.iter().map(with).collect()
}

/// The largest number of sites, with this number of terminals each, whose flows can all be open at the same time.
const MANY: Homes = Homes {
    sites: 100_000,
    terminals: 4,
};

/// Control plane of a gateway that translates the flows of terminals. If `serves` is set, the terminals belong to sites
/// that the gateway serves. Sessions of sites are distributed randomly over shards.
fn plane_of(homes: Homes, serves: bool) -> Result<(ControlPlane, Option<SiteWriter>), Failure> {
    let capacity = homes.flows() + homes.flows() / 4 + 16 * 1024;
    let mut policy = policy(Job::Translate, STYLE, capacity)?;
    let writer = if serves { Some(homes.serve(&mut policy)?) } else { None };
    let routes = route_set(&policy, &routes(Job::Translate)?)?;
    Ok((
        Layout::sessions(Job::Translate, capacity, false).plane(policy, &[routes])?,
        writer,
    ))
}

/// Measures two gateways in turn with the same flows; only one of them serves sites. At the gateway with sites, each
/// flow belongs to a different terminal, whose frames have an S-tag and a C-tag on the inside and leave with the MAC of
/// the terminal's site. At the other gateway, the frames arrive untagged with the same addresses. Sizes are those of
/// untagged frames: on the inside, tagged frames are eight bytes longer.
pub fn sites(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    for (number, homes) in [(20, Homes::USUAL), (22, MANY)] {
        let [(plain, _), (served, writer)] = [plane_of(homes, false)?, plane_of(homes, true)?];
        let [mut plain_memory, mut served_memory] = [memory(&plain)?, memory(&served)?];
        let plain = Gateway::new(eal, number, Job::Translate, plain, &mut plain_memory)?;
        let served = Gateway::new(eal, number + 1, Job::Translate, served, &mut served_memory)?;
        let mut sides = [
            Side::new(plain, homes.hosts(), homes.flows(), None)?,
            Side::new(served, homes.hosts(), homes.flows(), Some(homes))?,
        ];
        let sizes = arguments.sizes(&[64]);
        let pair = |direction| {
            let sizes = sizes.iter();
            sizes.map(move |&bytes| [(); 2].map(|()| Case::plain(bytes, direction)))
        };
        let mut cases: Vec<[Case; 2]> = arguments.directions().into_iter().flat_map(pair).collect();
        for round in 0..if run.quick { 3 } else { 15 } {
            for case in &mut cases {
                // The first measurement finds the caches filled by the other gateway, so the order alternates.
                for place in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                    sides[place].run(&mut case[place])?;
                }
            }
        }
        sides.into_iter().try_for_each(Side::close)?;
        drop(writer);
        for [plain, served] in &cases {
            let keys = |row: Row, site| {
                row.key("site", site)
                    .key("sites", homes.sites)
                    .key("terminals", homes.terminals)
            };
            (run.row)(keys(plain.row(), "none"));
            let extra = |name| {
                pairs(served.runs.of(name), plain.runs.of(name), |served, plain| {
                    served - plain
                })
            };
            let row = keys(served.row(), "tags-and-mac").figure("extra_cycles", &extra("cycles_per_packet"));
            let row = row.figure("extra_parse_cycles", &extra(STAGES[1]));
            (run.row)(row.figure("extra_session_cycles", &extra(STAGES[2])));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_sluice_and_what_of_it_is_not_the_devices() {
        let case = |by, bytes, checksums, cost| {
            let mut case = Case::new(by, bytes, Direction::Up, checksums, Payload::Written);
            case.runs.add("cycles_per_packet", cost);
            case
        };
        let (vouched, computed) = (Checksums::Vouched, Checksums::Unverified);
        let rows = rows(&[
            case(By::L2fwd, 64, vouched, 100.0),
            case(By::L2fwd, 1518, vouched, 110.0),
            case(By::Sluice, 64, vouched, 200.0),
            case(By::Sluice, 1518, vouched, 212.0),
            case(By::Sluice, 64, computed, 200.0),
            case(By::Sluice, 1518, computed, 500.0),
        ]);
        let of = |row: &Row| [row.median("growth_cycles"), row.median("growth_beyond_l2fwd")];
        assert_eq!([Some(10.0), None], of(&rows[1]));
        assert_eq!([Some(12.0), Some(2.0)], of(&rows[3]));
        assert_eq!([Some(300.0), Some(290.0)], of(&rows[5]));
    }

    #[test]
    fn frames_of_sites_and_of_hosts_all_come_out_right() {
        let (eal, mut turn) = crate::turn::turn();
        let homes = Homes {
            sites: 5_000,
            terminals: 2,
        };
        for serves in [false, true] {
            *turn += 1;
            let (plane, _keeper) = plane_of(homes, serves).expect("a plane");
            let mut memory = memory(&plane).expect("memory");
            let gateway = Gateway::new(eal, 500 + *turn, Job::Translate, plane, &mut memory).expect("a gateway");
            let side = Side::new(gateway, homes.hosts(), homes.flows(), serves.then_some(homes));
            let mut side = side.unwrap_or_else(|error| panic!("{serves}: {error}"));
            for (bytes, direction) in [(64, Direction::Up), (256, Direction::Down), (128, Direction::Both)] {
                side.run(&mut Case::plain(bytes, direction))
                    .unwrap_or_else(|error| panic!("{serves} {bytes}: {error}"));
            }
            side.close().unwrap_or_else(|error| panic!("{serves}: {error}"));
        }
    }
}
