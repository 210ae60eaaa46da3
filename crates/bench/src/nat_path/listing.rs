//! Sessions listed under load.

use sluice_dpdk::Devices;
use sluice_engine::worker::request::{Cursor, SessionInfo};
use sluice_wire::Checksums;

use super::flows::{Hosts, Random, Written};
use super::opening::{complete, open, verify};
use super::rig::{self, Gateway, Job};
use super::rules::Style;
use super::{Direction, Failure, draw, empty, full, rates};
use crate::rows::{Row, Run};

/// Sessions that one answer holds.
const ANSWER: usize = 4096;

/// A list that is asked for part by part, and begun again at its end.
struct List {
    cursor: Cursor,
    /// Memory for an answer, while none is awaited.
    spare: Option<Vec<SessionInfo>>,
    listed: u64,
}

impl List {
    fn ask(&mut self, gateway: &mut Gateway<'_>) {
        if let Some(mut into) = self.spare.take() {
            into.clear();
            let _ = gateway.list(self.cursor, into);
        }
    }

    fn take(&mut self, gateway: &mut Gateway<'_>) {
        if let Some((next, sessions)) = gateway.listed() {
            self.listed += sessions.len() as u64;
            self.cursor = next.unwrap_or_default();
            self.spare = Some(sessions);
        }
    }
}

/// The same load without and with a list under way, in turns. All runs together list as many sessions as there are.
pub fn listing(
    run: &mut Run<'_>,
    eal: &'static sluice_dpdk::eal::Eal,
    number: u32,
    sessions: u32,
    runs: usize,
) -> Result<(), Failure> {
    let (mut source, devices, hand) = rig::join(eal, number)?;
    let capacity = sessions + sessions / 16 + 16 * 1024;
    let plane = rig::plane(Job::Translate, Style::SESSIONS, capacity, false)?;
    let mut memory = rig::memory(&plane)?;
    let backing = memory.backing().to_string();
    let mut gateway = Gateway::new(Job::Translate, plane, hand, &mut memory)?;
    let publics = complete(open::<Written>(&mut source, &mut gateway, Hosts::Sixteen, sessions))?;
    let mut random = Random(88_172_645_463_325_252);
    let direction = Direction::Both;
    let [mut costs, mut loops, mut empties, mut alone, mut added, mut pace] = [(); 6].map(|()| Vec::new());
    let mut list = List {
        cursor: Cursor::default(),
        spare: Some(Vec::with_capacity(ANSWER)),
        listed: 0,
    };
    for _ in 0..runs {
        let mut draw = |port| draw::<Written>(Hosts::Sixteen, &mut random, sessions, &publics, port);
        let base = empty(&mut source, direction, Checksums::Vouched, &mut draw);
        let begun = list.listed;
        let (mut quiet, mut busy, mut turns, mut packets) = (0.0, 0.0, 0u32, 0);
        while list.listed - begun < u64::from(sessions).div_ceil(runs as u64) {
            // Each goes first as often as second, so that a drift of the machine favours neither.
            for listing in [turns % 2 == 0, turns % 2 != 0] {
                let looped = full(&mut source, direction, Checksums::Vouched, &mut draw, || {
                    if listing {
                        list.ask(&mut gateway);
                    }
                    let now = gateway.now();
                    gateway.worker.round(now);
                    if listing {
                        list.take(&mut gateway);
                    }
                });
                if looped.sent != looped.came {
                    return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
                }
                verify::<Written>(Hosts::Sixteen, &looped.samples, &publics)?;
                if listing {
                    busy += looped.cycles;
                    packets += looped.sent;
                } else {
                    quiet += looped.cycles;
                }
                // What is under way ends here, so that the loop without a list has none; it counts as not listed.
                let listed = list.listed;
                while listing && list.spare.is_none() {
                    let now = gateway.now();
                    gateway.worker.round(now);
                    list.take(&mut gateway);
                }
                list.listed = listed;
            }
            turns += 1;
        }
        let (quiet, busy) = (quiet / f64::from(turns), busy / f64::from(turns));
        costs.push(busy - base);
        loops.push(busy);
        empties.push(base);
        alone.push(quiet - base);
        added.push((busy - quiet) / (quiet - base) * 100.0);
        pace.push(packets as f64 / (list.listed - begun) as f64);
    }
    let row = Row::new("listing")
        .key("sessions", sessions)
        .key("family", 4)
        .key("direction", direction.name())
        .key("mapping", "address-and-port-dependent")
        .key("checksums", "vouched")
        .key("memory", backing);
    (run.row)(
        rates(row, &costs, &loops, &empties)
            .figure("cycles_without_listing", &alone)
            .figure("added_percent", &added)
            .figure("packets_per_listed_session", &pace),
    );
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}
