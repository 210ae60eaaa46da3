//! Live traffic of kernel interfaces, which is captured if no daemon is running.

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use sluice_config::Config;
use sluice_config::config::Link;
use sluice_config::value::{Device, DeviceKind};
use sluice_dpdk::listener::{Listener, wait};
use sluice_engine::packet::io::PortIndex;

use super::live::{Capacity, Live, LiveError, LiveSource, Pace};
use crate::lowering;
use crate::replay::captures::Captured;

/// Maximum wait for frames between two progress reports.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of frames that are read from one interface before the next one is served.
const BUDGET: usize = 256;

/// An interface from which frames are received.
struct PacketSocket {
    port: PortIndex,
    device: String,
    listener: Listener,
}

/// Receive the frames of all kernel interfaces of a configuration, and report the progress to `watch`.
///
/// # Errors
/// The configuration has no kernel interface, this process lacks the privilege, or no frame is received.
pub fn listen(config: &Config, time: Duration, watch: &mut dyn FnMut(Pace)) -> Result<Live, LiveError> {
    let mut sockets = sockets(config)?;
    let mut live = Live::new(config, LiveSource::Kernel);
    let start = Instant::now();
    while start.elapsed() < time {
        let remaining = time.saturating_sub(start.elapsed());
        let listeners: Vec<_> = sockets.iter().map(|socket| &socket.listener).collect();
        wait(&listeners, remaining.min(POLL_INTERVAL));
        let mut capacity = Capacity::Available;
        for socket in &mut sockets {
            capacity = socket.poll(&mut live)?;
            if capacity == Capacity::Full {
                break;
            }
        }
        watch(live.pace(start.elapsed()));
        if capacity == Capacity::Full {
            break;
        }
    }
    let elapsed = start.elapsed();
    for socket in &sockets {
        live.missed(socket.port, socket.listener.missed());
    }
    live.finish(elapsed)
}

impl PacketSocket {
    fn poll(&mut self, live: &mut Live) -> Result<Capacity, LiveError> {
        for _ in 0..BUDGET {
            let received = self.listener.receive().map_err(|error| refused(&self.device, error))?;
            let Some(received) = received else { break };
            let frame = Captured {
                at: received.at,
                bytes: received.frame.to_vec(),
                length: received.length,
            };
            if live.receive(self.port, frame) == Capacity::Full {
                return Ok(Capacity::Full);
            }
        }
        Ok(Capacity::Available)
    }
}

fn sockets(config: &Config) -> Result<Vec<PacketSocket>, LiveError> {
    let mut sockets = Vec::new();
    let mut unsupported = Vec::new();
    for (port, index) in lowering::ports(config) {
        let Some(interface) = config.interfaces.get(usize::from(index)) else {
            continue;
        };
        let devices: &[Device] = match &interface.link {
            Link::Device { device, .. } => std::slice::from_ref(device),
            Link::Bond { members, .. } => members,
            Link::Vlan { .. } | Link::Virtual { .. } | Link::Tunnel(_) | Link::Removed => &[],
        };
        for device in devices {
            let name = device.as_str();
            if device.kind() != DeviceKind::Kernel {
                unsupported.push(name);
                continue;
            }
            sockets.push(PacketSocket {
                port,
                device: name.into(),
                listener: Listener::on(name).map_err(|error| refused(name, error))?,
            });
        }
    }
    match sockets.is_empty() {
        true => Err(LiveError::NoKernelInterface {
            devices: unsupported.join(", "),
        }),
        false => Ok(sockets),
    }
}

fn refused(device: &str, error: Error) -> LiveError {
    let device = device.to_owned();
    match error.kind() {
        ErrorKind::PermissionDenied => LiveError::Forbidden(device),
        _ => LiveError::Device { device, error },
    }
}
