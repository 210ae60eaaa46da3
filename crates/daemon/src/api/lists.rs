//! All lists of `sluice show` except the session list.

use std::sync::Arc;

use sluice_config::api::{
    Cleared, Core, Counter, Drop, Interface, Neighbour, NeighbourFilter, Page, RouterFilter, Status, operation,
};
use sluice_config::config::Link;
use sluice_dpdk::Port;
use sluice_engine::packet::counters::{InterfaceCounters, WorkerCounters};
use sluice_engine::packet::io::NO_PORT;
use sluice_engine::packet::reason::Reason;
use sluice_engine::snapshot;
use sluice_engine::worker::request::{Reply, Request};
use sluice_route::neighbour::{NeighbourIndex, State as NeighbourState};

use super::routers::router_name;
use super::sessions::{interface, router};
use super::{Refusal, Serve};
use crate::control::Control;
use crate::counters::{self, NEIGHBOUR_CONFLICTS};
use crate::start::{mac_text, sum};

impl Serve for operation::Status {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let plane = control.plane();
        let [all, v6] = control.counters.iter().fold([0u64; 2], |[all, v6], worker| {
            let exist = worker.sessions_created.get().wrapping_sub(worker.sessions_ended.get());
            [all.wrapping_add(exist), v6.wrapping_add(worker.sessions_v6.get())]
        });
        Ok(Status {
            name: config.document.system.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            process: std::process::id(),
            uptime: control.started_at.elapsed().as_secs(),
            generation: plane.snapshot().generation.into(),
            sessions: [all.saturating_sub(v6), v6],
            capacity: plane.start_parameters().sessions.map(u64::from),
            tsc_hz: sluice_dpdk::tsc::frequency(),
            warnings: control.warnings(),
        })
    }
}

impl Serve for operation::Interfaces {
    async fn serve(control: Arc<Control>, wanted: RouterFilter) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let plane = control.plane();
        let router = router(plane.snapshot(), wanted.router.as_deref())?;
        let items = (0..).zip(&plane.snapshot().interfaces).zip(&config.interfaces);
        let is_wanted = |interface: &snapshot::Interface| {
            router.is_none_or(|router| interface.bridge.is_none() && interface.router == router)
        };
        let items = items.filter(|((_, interface), _)| is_wanted(interface));
        let items = items.filter_map(|((number, interface), configured)| {
            let port = usize::from(interface.port);
            let device = control.port(port);
            let total = |value: fn(&InterfaceCounters) -> u64| sum(&control.counters, number, value);
            Some(Interface {
                name: interface.name.clone(),
                router: match interface.bridge {
                    Some(_) => String::new(),
                    None => router_name(plane.snapshot(), interface.router),
                },
                device: match &configured.link {
                    Link::Device { device, .. } => device.to_string(),
                    Link::Bond { members, .. } => members.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
                    Link::Virtual { peer } => {
                        let peer = config.interfaces.get(usize::from(*peer)).map_or("?", |peer| &peer.name);
                        format!("link to {peer}")
                    }
                    Link::Tunnel(tunnel) => tunnel.to_string(),
                    Link::Removed => return None,
                    Link::Vlan { parent, tags } => {
                        let parent = config
                            .interfaces
                            .get(usize::from(*parent))
                            .map_or("?", |parent| &parent.name);
                        format!("{parent} vlan {tags}")
                    }
                },
                driver: device.as_ref().map_or(String::new(), |port| port.driver().to_string()),
                link: if interface.port == NO_PORT || control.link_is_up(port) {
                    "up"
                } else {
                    "down"
                }
                .into(),
                mac: mac_text(interface.mac),
                mtu: interface.mtu,
                queues: device.as_ref().map_or(0, |port| port.queues()),
                steering: device
                    .as_ref()
                    .map_or_else(String::new, |port| port.steering().to_string()),
                card: device.as_deref().and_then(Port::offer).unwrap_or_default(),
                addresses: configured.addresses.iter().map(ToString::to_string).collect(),
                received: total(|counters| counters.received.get()),
                received_bytes: total(|counters| counters.received_bytes.get()),
                sent: total(|counters| counters.sent.get()),
                sent_bytes: total(|counters| counters.sent_bytes.get()),
                originated: total(|counters| counters.originated.get()),
                dropped: total(|counters| counters.all_drops()),
                to_host: total(|counters| counters.to_host.get()),
                parked: total(|counters| counters.parked.get()),
                unparked: total(|counters| counters.unparked.get()),
                counters: device
                    .as_deref()
                    .filter(|_| interface.tags.is_empty())
                    .map_or(Vec::new(), device_counters),
            })
        });
        Ok(Page::whole(items.collect()))
    }
}

fn counter(name: &str, count: u64) -> Counter {
    Counter {
        name: name.into(),
        count,
    }
}

fn device_counters(port: &Port) -> Vec<Counter> {
    let statistics = port.statistics();
    vec![
        counter("device-received", statistics.received),
        counter("device-sent", statistics.sent),
        counter("device-missed", statistics.missed),
        counter("device-receive-errors", statistics.receive_errors),
        counter("device-transmit-errors", statistics.transmit_errors),
        counter("device-no-buffer", statistics.no_buffer),
    ]
}

impl Serve for operation::Neighbours {
    async fn serve(control: Arc<Control>, filter: NeighbourFilter) -> Result<Self::Answer, Refusal> {
        let listed = known(&control).into_iter().map(|(_, neighbour)| neighbour);
        Ok(Page::whole(
            listed.filter(|neighbour| filter.matches(neighbour)).collect(),
        ))
    }
}

fn known(control: &Control) -> Vec<(sluice_route::neighbour::Neighbour, Neighbour)> {
    let plane = control.plane();
    let table = plane.neighbours();
    let places = (0..table.capacity() as u32).map(NeighbourIndex);
    let live = places.filter_map(|place| table.snapshot(place));
    live.filter(|neighbour| neighbour.state != NeighbourState::Free)
        .map(|neighbour| {
            let interface = plane.snapshot().interface(neighbour.interface);
            let router = plane.snapshot().router_of(neighbour.interface);
            // A point-to-point tunnel is listed with the outer address of its remote endpoint.
            let tunnel = interface.and_then(|interface| interface.tunnel.filter(|_| interface.is_pair()));
            let listed = Neighbour {
                router: router_name(plane.snapshot(), router),
                address: tunnel.map_or(neighbour.address, |tunnel| tunnel.remote).into(),
                mac: neighbour.state.has_mac().then(|| mac_text(neighbour.mac)),
                interface: interface.map_or(String::new(), |interface| interface.name.clone()),
                state: match neighbour.state {
                    NeighbourState::Permanent => "static",
                    state => state.name(),
                }
                .into(),
                parked: plane.waiting().of(neighbour.index),
            };
            (neighbour, listed)
        })
        .collect()
}

impl Serve for operation::ClearNeighbours {
    async fn serve(control: Arc<Control>, filter: NeighbourFilter) -> Result<Self::Answer, Refusal> {
        if let Some(name) = &filter.interface {
            interface(control.plane().snapshot(), name)?;
        }
        let mut count = 0;
        let meant: Vec<_> = known(&control)
            .into_iter()
            .filter(|(neighbour, listed)| neighbour.state != NeighbourState::Permanent && filter.matches(listed))
            .collect();
        for (neighbour, _) in meant {
            let request = Request::ClearNeighbours {
                interface: Some(neighbour.interface),
                address: Some(neighbour.address),
                permanent: false,
            };
            if let Reply::Cleared(removed) = control.request_owner(request).await? {
                count += removed;
            }
        }
        tracing::info!("{count} neighbours removed on request");
        Ok(Cleared { count })
    }
}

impl Serve for operation::Cores {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let plane = control.plane();
        let items = control.counters.iter().enumerate().map(|(worker, counted)| {
            let load = control.load(worker);
            let conflicts = match worker as u16 == plane.snapshot().owner {
                true => plane.conflicts().count(),
                false => 0,
            };
            let mut others = counters::listed(WorkerCounters::NAMED, &**counted);
            others.extend(counters::listed(&[NEIGHBOUR_CONFLICTS], &conflicts));
            Core {
                worker: worker as u16,
                core: config.cores.get(worker).copied().unwrap_or_default(),
                state: match (control.watchdog.is_stuck(worker), load.asleep) {
                    (true, _) => "stuck",
                    (false, true) => "asleep",
                    (false, false) => "running",
                }
                .into(),
                parts: plane.start_parameters().stages.parts(worker as u16),
                shards: plane.start_parameters().owners.count(worker as u16) as u16,
                sessions: counted
                    .sessions_created
                    .get()
                    .wrapping_add(counted.sessions_moved.get())
                    .wrapping_sub(counted.sessions_ended.get()),
                packets: counted.packets.get(),
                rate: load.rate,
                busy: load.busy,
                leaked: counted.leaked.get(),
                counters: others,
            }
        });
        Ok(Page::whole(items.collect()))
    }
}

impl Serve for operation::Drops {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let items = Reason::all().map(|reason| Drop {
            name: reason.name().into(),
            help: reason.help().into(),
            packets: crate::run::drops(&control, reason),
        });
        Ok(Page::whole(items.collect()))
    }
}
