//! Figures that were measured elsewhere or before, shown beside ours and labelled for what they are.

/// A figure from elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// The bench that it stands beside.
    pub bench: &'static str,
    /// The figure that it is one of.
    pub figure: &'static str,
    /// What was measured.
    pub what: &'static str,
    /// The value, in the figure's unit.
    pub value: f64,
    /// Where it comes from.
    pub source: &'static str,
}

const PROBE: &str =
    "the limit: hash, buckets, batch and rewrite alone; 2.1 GHz Sapphire-Rapids-class core, quiet, huge pages";
const VPP: &str = "VPP 26.06, packets in memory, its generator not counted; 2.1 GHz Sapphire-Rapids-class core";
const LINUX: &str = "Linux on veth, an earlier run; 2.1 GHz Sapphire-Rapids-class core";

const fn cycles(what: &'static str, value: f64, source: &'static str) -> Reference {
    Reference {
        bench: "nat-path",
        figure: "cycles_per_packet",
        what,
        value,
        source,
    }
}

const fn created(what: &'static str, value: f64) -> Reference {
    Reference {
        bench: "nat-path",
        figure: "sessions_per_s",
        what,
        value,
        source: VPP,
    }
}

const fn rate(what: &'static str, value: f64) -> Reference {
    Reference {
        bench: "kernel",
        figure: "packets_per_s",
        what,
        value,
        source: LINUX,
    }
}

const fn on_wires(figure: &'static str, what: &'static str, value: f64, source: &'static str) -> Reference {
    Reference {
        bench: "frames",
        figure,
        what,
        value,
        source,
    }
}

const QUICK_NAT: &str = "P4, Fig. 6: 5 cores of an i7-5930K, 82599 at 10 Gb/s";
const UNAT: &str = "P0, Fig. 7: 2 Xeon E5520, 82599 at 10 Gb/s";

/// All of them.
pub const REFERENCES: &[Reference] = &[
    cycles("probe, 8 k sessions", 63.0, PROBE),
    cycles("probe, 64 k sessions", 77.0, PROBE),
    cycles("probe, 1 M sessions", 100.0, PROBE),
    cycles("probe, 16 M sessions", 145.0, PROBE),
    cycles("VPP forwarding, one route", 52.0, VPP),
    cycles("VPP NAT44-ED, 1 flow", 136.0, VPP),
    cycles("VPP NAT44-ED, 8 k flows in random order", 255.0, VPP),
    cycles("VPP NAT44-ED, 64 k flows in random order", 297.0, VPP),
    cycles("VPP NAT44-ED, 1 M flows in random order", 775.0, VPP),
    cycles("VPP NAT44-EI, 64 k flows in order", 141.0, VPP),
    cycles("VPP stateful ACL, 64 k flows", 134.0, VPP),
    created("VPP new NAT sessions, least", 500_000.0),
    created("VPP new NAT sessions, most", 850_000.0),
    rate("Linux forwarding, established", 650_000.0),
    rate("iptables, established", 490_000.0),
    rate("iptables, new flows, 1 rule", 292_000.0),
    rate("iptables, new flows, 1,000 rules", 43_000.0),
    rate("iptables, new flows, 10,000 rules", 4_900.0),
    on_wires("gbps", "Quick NAT, 64 bytes: line rate", 7.62, QUICK_NAT),
    on_wires("gbps", "Quick NAT, 1518 bytes: line rate", 9.87, QUICK_NAT),
    on_wires("gbps", "Netfilter, 800 bytes", 9.4, QUICK_NAT),
    on_wires("mpps", "Linux, 64 bytes", 0.7, UNAT),
];

/// Those that stand beside a bench's figure.
pub fn beside(bench: &str, figure: &str) -> Vec<Reference> {
    let these = REFERENCES
        .iter()
        .filter(|reference| reference.bench == bench && reference.figure == figure);
    these.copied().collect()
}
