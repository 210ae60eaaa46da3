//! Tests with arbitrary bytes in any number of nested outer packets. The gateway must not panic, and every packet must
//! be counted.

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, ROUTER_MAC};
use crate::tunnelled::{self, FAR_MAC, MAC, all, arriving, outer, shim};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_engine::snapshot::tunnels::Tunnel;
use sluice_testkit::packet::{Frame, Network};
use sluice_testkit::strategy;
use sluice_wire::Checksums;

/// Changes a frame so that it is sent between known hosts and therefore forwarded.
fn aimed(mut frame: Frame, choice: u8) -> Frame {
    frame.tags.clear();
    if let Network::V4(header) = &mut frame.network {
        let near = [[192, 168, 1, 10], [10, 99, 0, 1], [10, 77, 0, 5], [198, 51, 100, 9]];
        header.destination = near[usize::from(choice & 3)];
        header.source = if choice & 4 == 0 {
            near[usize::from(choice >> 3 & 3)]
        } else {
            [10, 77, 0, 9]
        };
    }
    frame
}

/// A random frame that contains an outer packet of a tunnel. The packet is encapsulated several times, and some of its bytes are
/// changed.
fn wrapped(tunnel: Tunnel) -> impl Strategy<Value = Vec<u8>> {
    let inner = prop_oneof![
        3 => (strategy::frame(), any::<u8>()).prop_map(|(frame, choice)| aimed(frame, choice)),
        1 => strategy::fragment().prop_map(|(_, frame)| frame),
    ];
    let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let made = (inner, 1..5usize, edits).prop_map(move |(frame, depth, edits)| {
        let mut frame = frame;
        for _ in 0..depth {
            frame = arriving(&tunnel, &frame);
        }
        let mut bytes = frame.build();
        for (at, value) in edits {
            let at = 12 + at.index(bytes.len() - 12);
            bytes[at] = value;
        }
        bytes
    });
    let noise = (vec(any::<u8>(), 0..120), any::<bool>(), any::<bool>()).prop_map(move |(noise, v6, headed)| {
        let mut payload = shim(&tunnel, v6);
        if headed && tunnel.carries_frames() {
            payload.extend([MAC, FAR_MAC].concat());
        }
        payload.extend(noise);
        let ends = [tunnel.remote, tunnel.local];
        outer(&tunnel, ends, v6, 50_000, &payload)
            .macs(ROUTER_MAC, OUTSIDE_MAC)
            .build()
    });
    prop_oneof![3 => made, 2 => noise]
}

fn frames() -> impl Strategy<Value = (Tunnel, Vec<(u16, Vec<u8>)>)> {
    prop::sample::select(all()).prop_flat_map(|tunnel| {
        let outside = wrapped(tunnel).prop_map(|bytes| (OUTSIDE, bytes));
        let inside = (strategy::frame(), any::<u8>())
            .prop_map(|(frame, choice)| (INSIDE, aimed(frame, choice | 2).macs(HOST_MAC, INSIDE_MAC).build()));
        (Just(tunnel), vec(prop_oneof![3 => outside, 1 => inside], 1..24))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tunnel_any_outer_packets_nothing_panics_and_nothing_is_lost(
        (tunnel, frames) in frames(), translate in any::<bool>(), workers in 1..3usize,
    ) {
        let mut plan = tunnelled::plan(tunnel);
        (plan.translate, plan.workers, plan.sessions, plan.outside_mtu) = (translate, workers, 64, 700);
        plan.routes.push(rig::route("10.78.0.0", 16, sluice_route::Via::Attached(tunnelled::TUNNEL)));
        let mut rig = tunnelled::started(plan);
        let _capture = sluice_testkit::capture::on_failure("tunnel-hostile", frames.iter().map(|(_, bytes)| bytes));
        for (burst, chunk) in frames.chunks(5).enumerate() {
            for (interface, bytes) in chunk {
                rig.wires[burst % workers].inject(*interface, bytes, Checksums::Unverified);
            }
            rig.round();
            for sent in rig.sent() {
                prop_assert!(sluice_wire::layers::parse(&sent.frame).is_ok() || sent.frame.len() >= 34);
            }
            rig.pass(300);
        }
        rig.seconds(10);
        prop_assert!(rig.workers.iter_mut().all(|worker| worker.io_mut().parked() == 0));
    }
}
