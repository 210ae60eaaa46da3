//! Parses device names in the notation of the configuration.
//!
//! | name | device |
//! | --- | --- |
//! | `eth1` | a kernel interface, through AF_XDP, or AF_PACKET if AF_XDP is not possible |
//! | `0000:3b:00.0` | a card by its PCI address, driven by DPDK |
//! | `pcap:IN.pcap[,out=OUT.pcap]` | capture files |
//! | `tap:NAME` | a TAP interface of the kernel, created at start and removed at exit |
//! | `memif:SOCKET[,role=server\|client][,id=N]` | memory shared with another process |
//! | `vhost:SOCKET[,client=yes]` | the host side of a virtual machine's card |
//! | `virtio:SOCKET[,server=yes]` | the guest side of a vhost socket |
//! | `ring:NAME[,end=a\|b][,depth=N]` | memory: frames loop back, or go to the other end with the same name |
//! | `null:` | delivers empty frames as fast as they are polled, and discards sent frames |
//! | `bond:A+B` | link aggregation (LACP) over devices A and B |

use std::fmt;
use std::str::FromStr;

/// Why a device name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceNameError {
    /// The device name is empty.
    #[error("a device needs a name: a kernel interface (eth1), a PCI address (0000:3b:00.0) or KIND:… ({KINDS})")]
    Empty,
    /// The kind of device before the colon is unknown.
    #[error("there is no device kind `{0}`: devices are {KINDS}, kernel interfaces and PCI addresses")]
    UnknownKind(String),
    /// The name is not valid for a kernel interface.
    #[error("`{0}` is not a valid name of a kernel interface: names have 1 to 15 characters, without / and blanks")]
    BadInterface(String),
    /// The argument after the colon is missing or invalid.
    #[error("`{kind}:` needs {what}")]
    BadArgument {
        /// Kind of device.
        kind: &'static str,
        /// Expected argument.
        what: &'static str,
    },
    /// This kind of device does not have the option.
    #[error("`{kind}:` has no option `{option}`{}{known}", if known.is_empty() { "" } else { ": it has " })]
    UnknownOption {
        /// Kind of device.
        kind: &'static str,
        /// The unknown option.
        option: String,
        /// Options of this kind.
        known: &'static str,
    },
    /// The value of an option is invalid.
    #[error("option `{option}` must be {expected}, not `{value}`")]
    BadValue {
        /// Name of the option.
        option: &'static str,
        /// Expected values.
        expected: &'static str,
        /// The invalid value.
        value: String,
    },
    /// The address is not of the form domain:bus:device.function.
    #[error("`{0}` is not a PCI address: write an address such as 0000:3b:00.0")]
    BadPciAddress(String),
}

const KINDS: &str = "pcap:, tap:, memif:, vhost:, virtio:, ring:, null:, bond:";

/// A PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// Domain, usually 0.
    pub domain: u16,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

impl FromStr for PciAddress {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (text, function) = text.rsplit_once('.')?;
            let mut parts = text.split(':');
            let numbers = [parts.next()?, parts.next()?, parts.next()?].map(|part| u16::from_str_radix(part, 16).ok());
            let [Some(domain), Some(bus), Some(device)] = numbers else {
                return None;
            };
            let address = Self {
                domain,
                bus: bus.try_into().ok()?,
                device: device.try_into().ok()?,
                function: function.parse().ok()?,
            };
            (parts.next().is_none() && address.device < 32 && address.function < 8).then_some(address)
        };
        parse().ok_or_else(|| DeviceNameError::BadPciAddress(text.into()))
    }
}

/// End of a ring with a given name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingEnd {
    /// The only end of a loop: sent frames are received on this end.
    Loop,
    /// First end of a pair of rings.
    A,
    /// Second end of a pair of rings.
    B,
}

/// A device that a port can use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// A kernel interface.
    Kernel {
        /// Name of the interface.
        interface: String,
    },
    /// A PCI card.
    Pci(PciAddress),
    /// Capture files.
    Pcap {
        /// File from which frames are read.
        input: Option<String>,
        /// File to which frames are written. `None` discards frames.
        output: Option<String>,
    },
    /// A TAP interface that Sluice creates.
    Tap {
        /// Name of the interface.
        interface: String,
    },
    /// Memory shared with another process (memif).
    Memif {
        /// Path of the socket.
        socket: String,
        /// Whether Sluice listens on the socket, rather than connecting.
        server: bool,
        /// Number of the interface on the socket.
        id: u32,
    },
    /// The host side of a virtio card (vhost-user).
    Vhost {
        /// Path of the socket.
        socket: String,
        /// Whether Sluice connects instead of listening.
        client: bool,
    },
    /// The guest side of a virtio card (virtio-user).
    Virtio {
        /// Path of the socket.
        socket: String,
        /// Whether Sluice listens instead of connecting.
        server: bool,
    },
    /// Rings in memory of this process.
    Ring {
        /// Name of the ring.
        name: String,
        /// End of the ring.
        end: RingEnd,
        /// Capacity in frames per queue and direction.
        depth: u32,
    },
    /// DPDK's null device.
    Null,
    /// A bond of several devices (LACP).
    Bond {
        /// Member devices.
        members: Vec<Device>,
    },
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Kernel { interface } => write!(f, "{interface}"),
            Device::Pci(address) => write!(f, "{address}"),
            Device::Pcap { input, output } => {
                write!(f, "pcap:{}", input.as_deref().unwrap_or_default())?;
                output.as_ref().map_or(Ok(()), |output| write!(f, ",out={output}"))
            }
            Device::Tap { interface } => write!(f, "tap:{interface}"),
            Device::Memif { socket, server, id } => {
                write!(
                    f,
                    "memif:{socket},role={},id={id}",
                    if *server { "server" } else { "client" }
                )
            }
            Device::Vhost { socket, client } => write!(f, "vhost:{socket}{}", if *client { ",client=yes" } else { "" }),
            Device::Virtio { socket, server } => {
                write!(f, "virtio:{socket}{}", if *server { ",server=yes" } else { "" })
            }
            Device::Ring { name, end, depth } => {
                let end = match end {
                    RingEnd::Loop => "",
                    RingEnd::A => ",end=a",
                    RingEnd::B => ",end=b",
                };
                write!(f, "ring:{name}{end},depth={depth}")
            }
            Device::Null => write!(f, "null:"),
            Device::Bond { members } => {
                let members: Vec<String> = members.iter().map(Device::to_string).collect();
                write!(f, "bond:{}", members.join("+"))
            }
        }
    }
}

/// Text after the colon of a device name: `ARGUMENT,key=value,…`.
struct DeviceOptions<'a> {
    kind: &'static str,
    argument: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> DeviceOptions<'a> {
    fn read(kind: &'static str, text: &'a str, known: &'static [&'static str]) -> Result<Self, DeviceNameError> {
        let mut parts = text.split(',');
        let argument = parts.next().unwrap_or_default();
        let mut options = Vec::new();
        for part in parts {
            let (option, value) = part.split_once('=').unwrap_or((part, ""));
            if !known.contains(&option) {
                let known = match kind {
                    "pcap" => "out",
                    "memif" => "role, id",
                    "vhost" => "client",
                    "virtio" => "server",
                    "ring" => "end, depth",
                    _ => "",
                };
                return Err(DeviceNameError::UnknownOption {
                    kind,
                    option: option.into(),
                    known,
                });
            }
            options.push((option, value));
        }
        Ok(Self {
            kind,
            argument,
            options,
        })
    }

    fn required(&self, what: &'static str) -> Result<String, DeviceNameError> {
        if self.argument.is_empty() {
            return Err(DeviceNameError::BadArgument { kind: self.kind, what });
        }
        Ok(self.argument.into())
    }

    fn option<T>(
        &self,
        option: &'static str,
        expected: &'static str,
        default: T,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, DeviceNameError> {
        match self.options.iter().find(|(name, _)| *name == option) {
            None => Ok(default),
            Some((_, value)) => read(value).ok_or_else(|| DeviceNameError::BadValue {
                option,
                expected,
                value: (*value).into(),
            }),
        }
    }

    fn yes(&self, option: &'static str) -> Result<bool, DeviceNameError> {
        self.option(option, "yes or no", false, |value| match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        })
    }
}

fn interface(name: &str) -> Result<String, DeviceNameError> {
    let fits = (1..=15).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/:,+".contains(&byte))
        && name != "."
        && name != "..";
    if fits {
        Ok(name.into())
    } else {
        Err(DeviceNameError::BadInterface(name.into()))
    }
}

fn pcap(rest: &str) -> Result<Device, DeviceNameError> {
    let written = DeviceOptions::read("pcap", rest, &["out"])?;
    let output = written.option("out", "a path", None, |value| {
        (!value.is_empty()).then(|| Some(value.to_owned()))
    })?;
    let input = (!written.argument.is_empty()).then(|| written.argument.to_owned());
    if input.is_none() && output.is_none() {
        return Err(DeviceNameError::BadArgument {
            kind: "pcap",
            what: "a capture file to read, or out=",
        });
    }
    Ok(Device::Pcap { input, output })
}

fn ring(rest: &str) -> Result<Device, DeviceNameError> {
    let written = DeviceOptions::read("ring", rest, &["end", "depth"])?;
    let end = written.option("end", "a or b", RingEnd::Loop, |value| match value {
        "a" => Some(RingEnd::A),
        "b" => Some(RingEnd::B),
        _ => None,
    })?;
    let depth = written.option("depth", "64 to 1048576", 1024, |value| {
        value.parse().ok().filter(|depth| (64..=1 << 20).contains(depth))
    })?;
    Ok(Device::Ring {
        name: written.required("a name")?,
        end,
        depth,
    })
}

impl FromStr for Device {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(DeviceNameError::Empty);
        }
        let Some((kind, rest)) = text.split_once(':') else {
            return Ok(Device::Kernel {
                interface: interface(text)?,
            });
        };
        match kind {
            "pcap" => pcap(rest),
            "tap" => Ok(Device::Tap {
                interface: interface(DeviceOptions::read("tap", rest, &[])?.argument)?,
            }),
            "memif" => {
                let written = DeviceOptions::read("memif", rest, &["role", "id"])?;
                let server = written.option("role", "server or client", true, |value| match value {
                    "server" => Some(true),
                    "client" => Some(false),
                    _ => None,
                })?;
                let id = written.option("id", "a number", 0, |value| value.parse().ok())?;
                Ok(Device::Memif {
                    socket: written.required("the path of a socket")?,
                    server,
                    id,
                })
            }
            "vhost" => {
                let written = DeviceOptions::read("vhost", rest, &["client"])?;
                Ok(Device::Vhost {
                    socket: written.required("the path of a socket")?,
                    client: written.yes("client")?,
                })
            }
            "virtio" => {
                let written = DeviceOptions::read("virtio", rest, &["server"])?;
                Ok(Device::Virtio {
                    socket: written.required("the path of a socket")?,
                    server: written.yes("server")?,
                })
            }
            "ring" => ring(rest),
            "null" if rest.is_empty() => Ok(Device::Null),
            "null" => Err(DeviceNameError::BadArgument {
                kind: "null",
                what: "no text after the colon",
            }),
            "bond" => {
                let members = rest.split('+').map(Device::from_str).collect::<Result<Vec<_>, _>>()?;
                if members
                    .iter()
                    .any(|member| !matches!(member, Device::Kernel { .. } | Device::Pci(_)))
                {
                    let what = "kernel interfaces or PCI addresses, joined by +";
                    return Err(DeviceNameError::BadArgument { kind: "bond", what });
                }
                Ok(Device::Bond { members })
            }
            kind if kind.bytes().all(|byte| byte.is_ascii_hexdigit()) => text.parse().map(Device::Pci),
            kind => Err(DeviceNameError::UnknownKind(kind.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_name_of_every_kind_reads_back() {
        for text in [
            "eth1",
            "0000:3b:00.0",
            "pcap:in.pcap",
            "pcap:in.pcap,out=out.pcap",
            "pcap:,out=out.pcap",
            "tap:sluice0",
            "memif:/run/m.sock,role=client,id=3",
            "vhost:/run/v.sock",
            "vhost:/run/v.sock,client=yes",
            "virtio:/run/v.sock,server=yes",
            "ring:r,depth=1024",
            "ring:r,end=b,depth=8192",
            "null:",
            "bond:eth1+eth2",
            "bond:0000:3b:00.0+0000:3b:00.1",
        ] {
            let device: Device = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(text, device.to_string());
        }
    }

    #[test]
    fn device_name_that_is_wrong_is_refused_with_a_hint() {
        for (text, hint) in [
            ("", "needs a name"),
            ("wifi:x", "no kind of device is called `wifi`"),
            ("an-interface-too-long", "1 to 15 characters"),
            ("a/b", "1 to 15 characters"),
            ("0000:3b:00", "is no PCI address"),
            ("0000:3b:20.0", "is no PCI address"),
            ("memif:", "needs the path of a socket"),
            ("memif:/x,role=master", "server or client"),
            ("vhost:/x,queues=2", "has no option `queues`: it has client"),
            ("ring:r,depth=9", "64 to 1048576"),
            ("null:x", "no text after the colon"),
            ("bond:eth1+null:", "joined by +"),
            ("pcap:", "a capture file to read"),
        ] {
            let error = text.parse::<Device>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
