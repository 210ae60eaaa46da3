//! Routing protocols, by their netlink number (RTPROT).

/// RTPROT of the routes that Sluice adds to the kernel.
pub const OWN_PROTOCOL: u8 = 0x53;

/// RTPROT_KERNEL: routes that the kernel derives from addresses.
pub(super) const DERIVED: u8 = 2;

/// Administrative distance of a daemon's routes by RTPROT. The values are the usual defaults of routers.
pub fn distance(protocol: u8) -> u8 {
    match protocol {
        // RTPROT BOOT, STATIC and FRR's ZSTATIC: configured manually.
        3 | 4 | 196 => 1,
        // RTPROT RA, DHCP
        9 | 16 => 5,
        // RTPROT BGP
        186 => 20,
        // RTPROT EIGRP
        192 => 90,
        // RTPROT BABEL
        42 => 100,
        // RTPROT OSPF
        188 => 110,
        // RTPROT ISIS, OPENFABRIC
        187 | 197 => 115,
        // RTPROT RIP, RIPNG
        189 | 190 => 120,
        _ => 150,
    }
}

/// Name of an RTPROT; `None` for an unknown RTPROT.
pub fn protocol_name(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        2 => "kernel",
        3 => "boot",
        4 | 196 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        42 => "babel",
        99 => "openr",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        190 => "ripng",
        191 => "nhrp",
        192 => "eigrp",
        193 => "ldp",
        194 => "sharp",
        195 => "pbr",
        197 => "openfabric",
        198 => "srte",
        _ => return None,
    })
}
