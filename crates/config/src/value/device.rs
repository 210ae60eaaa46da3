//! Devices that send and receive frames, in the notation of the configuration.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, written_as_text};

/// Kind of a device, derived from its notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A kernel interface by name: `eth1`.
    Kernel,
    /// A card by PCI address: `0000:3b:00.0`.
    Pci,
    /// A capture file: `pcap:…`.
    Capture,
    /// A TAP interface that Sluice creates: `tap:…`.
    Tap,
    /// Shared memory with another process: `memif:…`.
    Memif,
    /// A vhost-user socket that Sluice creates for the network card of a virtual machine: `vhost:…`.
    Vhost,
    /// A client of a vhost-user socket: `virtio:…`.
    Virtio,
    /// A ring within this process: `ring:…`.
    Ring,
    /// A device that discards sent frames and receives none: `null:`.
    Null,
}

impl DeviceKind {
    /// Kinds that are written with a prefix and a colon.
    pub const PREFIXES: [(&'static str, DeviceKind); 7] = [
        ("pcap", Self::Capture),
        ("tap", Self::Tap),
        ("memif", Self::Memif),
        ("vhost", Self::Vhost),
        ("virtio", Self::Virtio),
        ("ring", Self::Ring),
        ("null", Self::Null),
    ];
}

/// A device: its kind, and the text for the driver layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    kind: DeviceKind,
    text: String,
}

impl Device {
    /// Kind of the device.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Text in the configuration.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Whether a text has the form `DDDD:BB:DD.F` in hexadecimal.
fn is_pci_address(text: &str) -> bool {
    let mut parts = text.split([':', '.']);
    let widths = [4, 2, 2, 1];
    text.len() == 12
        && text.as_bytes().get(10) == Some(&b'.')
        && widths.iter().all(|&width| {
            parts
                .next()
                .is_some_and(|part| part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit()))
        })
}

impl FromStr for Device {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let device = |kind| {
            Ok(Self {
                kind,
                text: text.into(),
            })
        };
        if is_pci_address(text) {
            return device(DeviceKind::Pci);
        }
        let Some((prefix, rest)) = text.split_once(':') else {
            // IFNAMSIZ is 16, including the terminating zero.
            let name = !text.is_empty()
                && text.len() <= 15
                && text != "."
                && text != ".."
                && text.bytes().all(|b| b.is_ascii_graphic() && !b"/,+".contains(&b));
            return if name {
                device(DeviceKind::Kernel)
            } else {
                Err(ValueError::DeviceName(text.into()))
            };
        };
        let Some(&(_, kind)) = DeviceKind::PREFIXES.iter().find(|(known, _)| *known == prefix) else {
            return Err(ValueError::DeviceKind(prefix.into()));
        };
        if rest.is_empty() && kind != DeviceKind::Null {
            return Err(ValueError::DeviceIncomplete(text.into()));
        }
        device(kind)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

written_as_text!(Device, "a device such as \"eth1\", \"0000:3b:00.0\" or \"tap:sluice0\"");
