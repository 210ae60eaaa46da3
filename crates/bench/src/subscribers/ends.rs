//! Both sides of a gateway in one process and network namespace: terminals behind one veth pair, the operator's network
//! behind another.

use sluice_daemon::subscribers::virtual_mac::text;
use sluice_dpdk::{Driver, Plan, PortPlan};
use sluice_engine::packet::io::BURST_SIZE;
use sluice_wire::Mac;

use super::Failure;
use super::gateway::OPERATOR_MAC;
use crate::kernel::command::run;
use crate::netns::bring_up;
use crate::rig::Source;

/// The gateway's devices on the terminals' side and on the operator's side.
pub const DEVICES: [&str; 2] = ["access", "outside"];
pub const FAR: [&str; 2] = ["street", "operator"];
/// MAC addresses of the gateway's devices.
pub const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// MAC addresses of the opposite ends of both links; terminals have MAC addresses of their own.
const FAR_MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 3], OPERATOR_MAC];

/// A side of the gateway: the terminals' or the operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Street,
    Operator,
}

pub fn wires() -> Result<(), Failure> {
    run("ip link set lo up")?;
    run("sysctl -q -w net.ipv6.conf.default.disable_ipv6=1")?;
    for ((near, far), (mac, other)) in DEVICES.into_iter().zip(FAR).zip(MACS.into_iter().zip(FAR_MACS)) {
        let (mac, other) = (text(mac), text(other));
        run(&format!(
            "ip link add {near} address {mac} mtu 1508 type veth peer name {far} address {other} mtu 1508"
        ))?;
        for interface in [near, far] {
            bring_up("env", interface)?;
        }
    }
    Ok(())
}

/// The opposite ends of both links, used by this process.
pub struct Ends(Source);

impl Ends {
    pub fn open(core: usize) -> Result<Self, Failure> {
        let port = |name: &str| {
            Ok(PortPlan {
                driver: Some(Driver::AfPacket),
                ..PortPlan::new(name, name.parse()?)
            })
        };
        let ports = FAR.into_iter().map(port).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Self(Source::alone(&Plan::new(ports, 1), core)?.1))
    }

    /// Sends up to one batch of frames. `write` writes a frame and returns its length, or returns `None` if there are
    /// no more frames. Returns the number of frames that the interface accepted.
    pub fn send(&mut self, by: End, count: usize, mut write: impl FnMut(&mut [u8]) -> Option<usize>) -> usize {
        let mut scratch = [0; LONGEST];
        let (_, taken) = self.0.send(&[(by as u16, count.min(BURST_SIZE))], |_, packet| {
            let Some(length) = write(&mut scratch).filter(|&length| packet.set_len(length)) else {
                return false;
            };
            packet.bytes_mut().copy_from_slice(&scratch[..length]);
            true
        });
        taken
    }

    /// Processes received frames; returns the number of frames.
    pub fn receive(&mut self, by: End, each: impl FnMut(&[u8])) -> usize {
        self.0.drain(by as u16, each)
    }
}

/// Maximum length of a frame that is sent.
pub const LONGEST: usize = 1_514;
