//! Network cards that QEMU emulates, and their drivers in the guest.

use clap::ValueEnum;

use crate::kernel::topology::{INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, mac_text};

/// A kind of network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Card {
    /// virtio-net, version 1.
    Virtio,
    /// Intel 82574L.
    E1000e,
    /// VMware's vmxnet3.
    Vmxnet3,
}

/// PCI addresses of the inside and the outside card.
pub const ADDRESSES: [&str; 2] = ["0000:00:02.0", "0000:00:03.0"];

impl Card {
    /// QEMU's device, and the modules and the name of the Linux driver.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Virtio => [
                "virtio-net-pci,disable-legacy=on",
                "virtio_pci virtio_net",
                "virtio-pci",
            ],
            Self::E1000e => ["e1000e"; 3],
            Self::Vmxnet3 => ["vmxnet3"; 3],
        }
    }

    /// QEMU arguments for two cards of this kind at two TAP interfaces.
    pub fn devices(self, taps: [&str; 2]) -> String {
        let [device, ..] = self.names();
        let each = taps.into_iter().zip([INSIDE_MAC, OUTSIDE_MAC]).zip(ADDRESSES);
        let card = |((tap, mac), address): ((&str, _), &str)| {
            let (mac, slot) = (mac_text(mac), address.trim_start_matches("0000:00:"));
            format!(
                " -netdev tap,id={tap},ifname={tap},script=no,downscript=no,vhost=off \
                 -device {device},netdev={tap},mac={mac},addr={slot}"
            )
        };
        each.map(card).collect()
    }

    /// Guest commands that bind both cards to their Linux drivers and name their interfaces; the interfaces are down
    /// afterwards.
    pub fn to_linux(self) -> String {
        let [_, modules, driver] = self.names();
        let mut text = bind(modules, driver);
        for (address, name) in ADDRESSES.into_iter().zip([INSIDE, OUTSIDE]) {
            // For virtio, the interface is in the folder of the device on the virtio bus, which is below that of the
            // PCI device.
            text += &format!(
                "for attempt in $(seq 500); do\n\
                 found=$(cd /sys/bus/pci/devices/{address}; ls net virtio*/net 2>/dev/null | grep -v :)\n\
                 [ -z \"$found\" ] || break\nusleep 20000\ndone\n\
                 [ -n \"$found\" ] || {{ echo \"no interface of {address}\"; exit 1; }}\n\
                 ip link set \"$found\" down\n[ \"$found\" = {name} ] || ip link set \"$found\" name {name}\n"
            );
        }
        text
    }

    /// Guest commands that bind both cards to UIO, for use by Sluice.
    pub fn to_program() -> String {
        bind("uio_pci_generic", "uio_pci_generic")
    }
}

/// Guest commands that unbind both cards and bind them to a driver.
fn bind(modules: &str, driver: &str) -> String {
    format!(
        "for module in {modules}; do modprobe $module; done\n\
         for address in {}; do\n\
         cd /sys/bus/pci/devices/$address\n\
         echo {driver} >driver_override\n\
         [ ! -e driver ] || [ \"$(basename $(readlink driver))\" = {driver} ] || echo $address >driver/unbind\n\
         [ -e driver ] || echo $address >/sys/bus/pci/drivers_probe\n\
         [ -e driver ] || {{ echo \"{driver} does not take $address\"; exit 1; }}\n\
         done\n",
        ADDRESSES.join(" ")
    )
}
