//! What tags and a virtual MAC add to an established packet: two gateways take turns with the same flows, of which one serves
//! sites. There each flow is of another terminal, whose frames have an S-tag and a C-tag and leave with its site's MAC; at
//! the other they come untagged, of the same addresses.
//!
//! Sizes are those of frames without tags: inside they are eight bytes longer.

use sluice_dpdk::Devices;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_wire::Checksums;

use super::filled::{Filled, Filling};
use super::throughput::figures;
use super::{Failure, FramesArguments, Model, STYLE, row};
use crate::homes::{Homed, Homes};
use crate::nat_path::flows::{Random, Written, data};
use crate::nat_path::opening::{complete, open_as, verify_filled};
use crate::nat_path::rig::{self, Gateway, Job, Source};
use crate::nat_path::{Direction, Publics, STAGES, empty, full, name, stages_of};
use crate::rows::{Row, Run};

/// Sites and terminals beside the usual ones: as many as are to be served at once.
const MANY: Homes = Homes {
    sites: 100_000,
    terminals: 4,
};

/// What one gateway had in the runs of a size and way.
#[derive(Clone, Debug, Default)]
struct Runs {
    costs: Vec<f64>,
    loops: Vec<f64>,
    empties: Vec<f64>,
    stages: [Vec<f64>; STAGES.len()],
}

/// A size and way, with what the gateway without sites and that with sites had.
#[derive(Clone, Debug)]
struct Case {
    bytes: usize,
    direction: Direction,
    runs: [Runs; 2],
}

/// A gateway with its source.
struct Side<'m> {
    homes: Homes,
    /// Frames have tags.
    tagged: bool,
    source: Source,
    gateway: Gateway<'m>,
    devices: Devices,
    publics: Publics,
    random: Random,
    /// Packets that its sessions had counted when all flows were open, and that it translated since.
    before: u64,
    translated: u64,
}

/// Sessions that there is room for: those of sites spread over shards as chance has it.
fn capacity(homes: Homes) -> u32 {
    homes.flows() + homes.flows() / 4 + 16 * 1024
}

fn dressed<'f>(homes: Homes, tagged: bool, written: Written, inside: bool, filled: Filled<'f>) -> Homed<Filled<'f>> {
    let written = if tagged {
        homes.address(written, inside)
    } else {
        written
    };
    Homed {
        frame: Filled { written, ..filled },
        tags: (tagged && inside).then(|| homes.tags(written.mark)),
    }
}

impl<'m> Side<'m> {
    fn new(
        eal: &'static Eal,
        number: u32,
        homes: Homes,
        tagged: bool,
        plane: sluice_engine::plane::Plane,
        memory: &'m mut Region,
    ) -> Result<Self, Failure> {
        let (mut source, devices, hand) = rig::join(eal, number)?;
        let mut gateway = Gateway::new(Job::Translate, plane, hand, memory)?;
        let filling = Filling::new(64);
        let frame = |written: Written, inside| {
            let filled = Filled {
                written,
                tail: written.mark.into(),
                filling: &filling,
                kept: false,
            };
            dressed(homes, tagged, written, inside, filled)
        };
        let publics = open_as(&mut source, &mut gateway, homes.hosts(), homes.flows(), frame);
        let publics = complete(publics)?;
        let before = gateway.session_packets()?;
        Ok(Self {
            homes,
            tagged,
            source,
            gateway,
            devices,
            publics,
            random: Random(88_172_645_463_325_252),
            before,
            translated: 0,
        })
    }

    /// One run.
    fn run(&mut self, bytes: usize, direction: Direction, runs: &mut Runs) -> Result<(), Failure> {
        let filling = Filling::new(bytes);
        let (homes, tagged, random, publics) = (self.homes, self.tagged, &mut self.random, &self.publics);
        let mut draw = |port: u16| {
            let number = random.below(homes.flows().into());
            // Ports 2 and 3 stand for 0 and 1.
            let inside = port & 1 == 0;
            let public = (!inside).then(|| publics[number as usize]);
            let written = data(homes.hosts(), number, public);
            let filled = Filled {
                written,
                tail: number.into(),
                filling: &filling,
                kept: false,
            };
            dressed(homes, tagged, written, inside, filled)
        };
        let base = empty(&mut self.source, direction, Checksums::Vouched, &mut draw);
        let gateway = &mut self.gateway;
        let before = stages_of(gateway);
        let looped = full(&mut self.source, direction, Checksums::Vouched, &mut draw, || {
            let now = gateway.now();
            gateway.worker.round(now);
        });
        for ((runs, after), before) in runs.stages.iter_mut().zip(stages_of(gateway)).zip(before) {
            runs.push((after - before) as f64 / looped.sent as f64);
        }
        if looped.sent != looped.came {
            return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
        }
        self.translated += looped.sent;
        let served = tagged.then_some(homes);
        verify_filled::<Filled<'_>>(homes.hosts(), served, &looped.samples, publics, |number, transport| {
            filling.payload(number.into(), transport)
        })?;
        runs.costs.push(looped.cycles - base);
        runs.loops.push(looped.cycles);
        runs.empties.push(base);
        Ok(())
    }

    /// Nothing came out that the sessions have not counted.
    fn close(mut self) -> Result<(), Failure> {
        let counted = self.gateway.session_packets()? - self.before;
        if counted != self.translated {
            let sent = self.translated;
            return Err(format!("{sent} packets went through, the sessions counted {counted}").into());
        }
        drop(self.gateway);
        self.source.close();
        drop(Devices::close(self.devices));
        Ok(())
    }
}

/// Both gateways with these sites.
fn pair(
    run: &mut Run<'_>,
    eal: &'static Eal,
    number: u32,
    homes: Homes,
    cases: &mut [Case],
    rounds: usize,
) -> Result<(), Failure> {
    let plain = rig::plane(Job::Translate, STYLE, capacity(homes), false)?;
    let (served, keeper) = rig::plane_of_homes(homes, STYLE, capacity(homes))?;
    let mut memory = [rig::memory(&plain)?, rig::memory(&served)?];
    let [plain_memory, served_memory] = &mut memory;
    let mut sides = [
        Side::new(eal, number, homes, false, plain, plain_memory)?,
        Side::new(eal, number + 1, homes, true, served, served_memory)?,
    ];
    for round in 0..rounds {
        for case in &mut *cases {
            let Case { bytes, direction, runs } = case;
            // Who is first finds caches that the other case has left.
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for place in order {
                sides[place].run(*bytes, *direction, &mut runs[place])?;
            }
        }
    }
    sides.into_iter().try_for_each(Side::close)?;
    drop(keeper);
    for case in cases {
        rows(case, homes).into_iter().for_each(|row| (run.row)(row));
    }
    Ok(())
}

/// Measure it.
pub fn run(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    let sizes = if arguments.bytes.is_empty() {
        vec![64]
    } else {
        arguments.bytes.clone()
    };
    let rounds = if run.quick { 3 } else { 15 };
    for (number, homes) in [(20, Homes::USUAL), (22, MANY)] {
        let each = arguments.directions().into_iter().flat_map(|direction| {
            let case = move |&bytes: &usize| Case {
                bytes,
                direction,
                runs: Default::default(),
            };
            sizes.iter().map(case).collect::<Vec<_>>()
        });
        pair(run, eal, number, homes, &mut each.collect::<Vec<_>>(), rounds)?;
    }
    Ok(())
}

/// The rows of a case: without sites and with them, each with what it takes more than the other in the same round.
fn rows(case: &Case, homes: Homes) -> [Row; 2] {
    let [plain, served] = &case.runs;
    let with = |site: &str, runs: &Runs| {
        let row = row("sluice", case.bytes, case.direction)
            .key("site", site)
            .key("sites", homes.sites)
            .key("terminals", homes.terminals)
            .key("model", Model::RunToCompletion.name())
            .key("cores", 1)
            .key("source", "subtracted")
            .key("checksums", name(Checksums::Vouched))
            .key("payload", "written");
        let row = figures(
            row,
            (case.bytes, case.direction),
            (&runs.costs, &runs.loops, &runs.empties),
        );
        super::throughput::stages(row, &runs.stages)
    };
    let pairs = served.costs.iter().zip(&plain.costs);
    let extra: Vec<f64> = pairs.map(|(served, plain)| served - plain).collect();
    let plain = with("none", plain);
    let mut served = with("tags-and-mac", served).figure("extra_cycles", &extra);
    let [of_plain, of_served] = [&case.runs[0], &case.runs[1]];
    for (name, stage) in [("extra_parse_cycles", 1), ("extra_session_cycles", 2)] {
        let pairs = of_served.stages[stage].iter().zip(&of_plain.stages[stage]);
        served = served.figure(name, &pairs.map(|(served, plain)| served - plain).collect::<Vec<_>>());
    }
    [plain, served]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_sites_and_of_hosts_all_come_out_right() {
        let (eal, mut turn) = crate::turn::turn();
        let homes = Homes {
            sites: 5_000,
            terminals: 2,
        };
        let plain = rig::plane(Job::Translate, STYLE, capacity(homes), false).expect("a plane");
        let (served, _keeper) = rig::plane_of_homes(homes, STYLE, capacity(homes)).expect("a plane");
        for (tagged, plane) in [(false, plain), (true, served)] {
            *turn += 1;
            let mut memory = rig::memory(&plane).expect("memory");
            let side = Side::new(eal, 500 + *turn, homes, tagged, plane, &mut memory);
            let mut side = side.unwrap_or_else(|error| panic!("{tagged}: {error}"));
            let mut runs = Runs::default();
            for (bytes, direction) in [(64, Direction::Up), (256, Direction::Down), (128, Direction::Both)] {
                let outcome = side.run(bytes, direction, &mut runs);
                outcome.unwrap_or_else(|error| panic!("{tagged} {bytes}: {error}"));
            }
            side.close().unwrap_or_else(|error| panic!("{tagged}: {error}"));
        }
    }
}
