//! Bridges: link states, forwarded packets, and packets that were forwarded despite a drop reason.

use std::sync::Arc;

use sluice_config::api::{Bridge, BridgeSide, Counter, Page, operation};
use sluice_config::config::InterfaceIndex;
use sluice_engine::packet::counters::InterfaceCounters;
use sluice_engine::packet::reason::Reason;

use super::{Refusal, Serve};
use crate::control::Control;
use crate::start::sum;

impl Serve for operation::Bridges {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let sides = (0..).zip(&config.interfaces);
        let mut items = Vec::new();
        for (index, interface) in sides {
            let Some(bridge) = interface.bridge.as_ref().filter(|bridge| index < bridge.peer) else {
                continue;
            };
            let name = config.document.bridges.get_index(bridge.number);
            let spared = |reason: Reason| -> u64 {
                let workers = control.counters.iter();
                let sides = |worker: &InterfaceCounters| worker.exempted(reason);
                let both = [index, bridge.peer].map(usize::from);
                workers
                    .flat_map(|worker| both.into_iter().filter_map(|side| worker.interfaces.get(side)))
                    .map(sides)
                    .sum()
            };
            items.push((
                bridge.number,
                Bridge {
                    name: name.map_or_else(String::new, |(name, _)| name.clone()),
                    sides: [index, bridge.peer].map(|side| side_of(&control, side)).into(),
                    exempted: Reason::all()
                        .map(|reason| Counter {
                            name: reason.name().into(),
                            count: spared(reason),
                        })
                        .filter(|counter| counter.count > 0)
                        .collect(),
                },
            ));
        }
        items.sort_by_key(|(number, _)| *number);
        Ok(Page::whole(items.into_iter().map(|(_, bridge)| bridge).collect()))
    }
}

fn side_of(control: &Control, side: InterfaceIndex) -> BridgeSide {
    let number = usize::from(side);
    let (name, port) = match control.plane().snapshot().interface(side) {
        Some(interface) => (interface.name.clone(), usize::from(interface.port)),
        None => Default::default(),
    };
    let total = |value: fn(&InterfaceCounters) -> u64| sum(&control.counters, number, value);
    let link = match control.held_links().contains(&side) {
        true => "held",
        false if control.link_is_up(port) => "up",
        false => "down",
    };
    BridgeSide {
        interface: name,
        link: link.into(),
        received: total(|counters| counters.received.get()),
        sent: total(|counters| counters.sent.get()),
        dropped: total(|counters| counters.all_drops()),
    }
}
