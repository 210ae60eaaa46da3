//! Live traffic of kernel interfaces, which is captured if no daemon is running.

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use sluice_config::Config;
use sluice_config::config::Link;
use sluice_config::value::{Device, DeviceKind};
use sluice_dpdk::listener::{Listener, wait};
use sluice_engine::packet::io::PortIndex;

use super::live::{Live, LiveError, Pace, Room, Witness};
use crate::lowering;
use crate::replay::captures::Captured;

/// Maximum wait for frames between two progress reports.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum number of frames that are read from one interface before the next one is served.
const TURN: usize = 256;

/// An interface from which frames are received.
struct Ear {
    port: PortIndex,
    device: String,
    listener: Listener,
}

/// Receive the frames of all kernel interfaces of a configuration, and report the progress to `watch`.
///
/// # Errors
/// The configuration has no kernel interface, this process lacks the privilege, or no frame is received.
pub fn listen(config: &Config, time: Duration, watch: &mut dyn FnMut(Pace)) -> Result<Live, LiveError> {
    let mut ears = ears(config)?;
    let mut live = Live::new(config, Witness::Kernel);
    let begin = Instant::now();
    while begin.elapsed() < time {
        let left = time.saturating_sub(begin.elapsed());
        let listeners: Vec<_> = ears.iter().map(|ear| &ear.listener).collect();
        wait(&listeners, left.min(LOOK));
        let mut room = Room::Left;
        for ear in &mut ears {
            room = ear.turn(&mut live)?;
            if room == Room::Full {
                break;
            }
        }
        watch(live.pace(begin.elapsed()));
        if room == Room::Full {
            break;
        }
    }
    let elapsed = begin.elapsed();
    for ear in &ears {
        live.missed(ear.port, ear.listener.missed());
    }
    live.finish(elapsed)
}

impl Ear {
    fn turn(&mut self, live: &mut Live) -> Result<Room, LiveError> {
        for _ in 0..TURN {
            let heard = self.listener.receive().map_err(|error| refused(&self.device, error))?;
            let Some(heard) = heard else { break };
            let frame = Captured {
                at: heard.at,
                bytes: heard.frame.to_vec(),
                length: heard.length,
            };
            if live.hear(self.port, frame) == Room::Full {
                return Ok(Room::Full);
            }
        }
        Ok(Room::Left)
    }
}

fn ears(config: &Config) -> Result<Vec<Ear>, LiveError> {
    let mut ears = Vec::new();
    let mut others = Vec::new();
    for (port, index) in lowering::ports(config) {
        let Some(interface) = config.interfaces.get(usize::from(index)) else {
            continue;
        };
        let devices: &[Device] = match &interface.link {
            Link::Device { device, .. } => std::slice::from_ref(device),
            Link::Bond { members, .. } => members,
            Link::Vlan { .. } | Link::Virtual { .. } | Link::Tunnel(_) | Link::Gone => &[],
        };
        for device in devices {
            let name = device.as_str();
            if device.kind() != DeviceKind::Kernel {
                others.push(name);
                continue;
            }
            ears.push(Ear {
                port,
                device: name.into(),
                listener: Listener::on(name).map_err(|error| refused(name, error))?,
            });
        }
    }
    match ears.is_empty() {
        true => Err(LiveError::NoneOfTheKernel {
            devices: others.join(", "),
        }),
        false => Ok(ears),
    }
}

fn refused(device: &str, error: Error) -> LiveError {
    let device = device.to_owned();
    match error.kind() {
        ErrorKind::PermissionDenied => LiveError::Forbidden(device),
        _ => LiveError::Device { device, error },
    }
}
