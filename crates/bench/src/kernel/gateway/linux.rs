//! Linux as the gateway in its best configuration: one core receives by RPS, or each core receives what its own
//! generator sends, and packets pass no unnecessary hooks. The same setup is used for Linux in virtual machines.

use std::fmt::Write;

use super::Case;
use crate::kernel::command::{feed, run};
use crate::kernel::topology::{
    GATEWAY, GENERATOR_ADDRESS, GENERATOR_MAC, INSIDE, INSIDE_ADDRESS, INSIDE_NETWORKS, OUTSIDE, OUTSIDE_ADDRESS, POOL,
    SINK_ADDRESS, SINK_MAC, Topology, inside_network, mac_text, steer,
};
use crate::rows::Failure;

/// Set up the gateway's namespace for a case.
pub fn start(case: Case, rules: u32, topology: &Topology) -> Result<(), Failure> {
    if topology.cores.are_apart() {
        steer(GATEWAY, INSIDE, topology.cores.gateway)?;
        steer(GATEWAY, OUTSIDE, topology.cores.gateway)?;
    }
    if case == Case::Generator {
        feed(&format!("ip netns exec {GATEWAY} nft -f -"), &drop_all())?;
        return Ok(());
    }
    if case == Case::Redirect {
        for (from, to) in [(INSIDE, OUTSIDE), (OUTSIDE, INSIDE)] {
            let all = "protocol all u32 match u32 0 0 action mirred egress redirect dev";
            run(&format!("tc -n {GATEWAY} qdisc add dev {from} clsact"))?;
            run(&format!("tc -n {GATEWAY} filter add dev {from} ingress {all} {to}"))?;
        }
        return Ok(());
    }
    run(&format!("ip netns exec {GATEWAY} sysctl -q -w {}", settings()))?;
    for line in addresses() {
        run(&format!("ip -n {GATEWAY} {line}"))?;
    }
    match case {
        Case::Iptables => feed(
            &format!("ip netns exec {GATEWAY} {}", iptables_restore()),
            &iptables(rules),
        )?,
        Case::NftablesLinear => feed(&format!("ip netns exec {GATEWAY} nft -f -"), &nftables_linear(rules))?,
        Case::NftablesMap => feed(&format!("ip netns exec {GATEWAY} nft -f -"), &nftables_map(rules))?,
        _ => String::new(),
    };
    Ok(())
}

/// Settings of a forwarding kernel, in the format of `sysctl -w`.
pub fn settings() -> String {
    let mut settings = String::from("net.ipv4.ip_forward=1 net.ipv4.ip_early_demux=0");
    for interface in ["all", "default", INSIDE, OUTSIDE] {
        let _ = write!(settings, " net.ipv4.conf.{interface}.rp_filter=0");
        let _ = write!(settings, " net.ipv4.conf.{interface}.send_redirects=0");
    }
    settings
}

/// Addresses, neighbours and routes, as arguments of `ip`.
pub fn addresses() -> [String; 6] {
    [
        format!("address add {INSIDE_ADDRESS} dev {INSIDE}"),
        format!("address add {OUTSIDE_ADDRESS} dev {OUTSIDE}"),
        format!(
            "neighbour add {GENERATOR_ADDRESS} lladdr {} dev {INSIDE} nud permanent",
            mac_text(GENERATOR_MAC)
        ),
        format!(
            "neighbour add {SINK_ADDRESS} lladdr {} dev {OUTSIDE} nud permanent",
            mac_text(SINK_MAC)
        ),
        format!("route add {INSIDE_NETWORKS} via {GENERATOR_ADDRESS}"),
        format!("route add default via {SINK_ADDRESS}"),
    ]
}

/// The command of the legacy iptables, which uses the kernel's own tables, if it is installed: it is faster than the
/// iptables that uses nftables.
fn iptables_restore() -> &'static str {
    match run("iptables-legacy-restore --version") {
        Ok(_) => "iptables-legacy-restore",
        Err(_) => "iptables-restore",
    }
}

fn drop_all() -> String {
    format!(
        "table netdev gateway {{ chain inside {{
            type filter hook ingress device {INSIDE} priority 0; policy drop;
        }}
        chain outside {{
            type filter hook ingress device {OUTSIDE} priority 0; policy drop;
        }}\n}}\n"
    )
}

/// Source-NAT rules for `iptables-restore`.
pub fn iptables(rules: u32) -> String {
    let mut text = String::from("*nat\n");
    for rule in 0..rules {
        let network = inside_network(rule);
        let _ = writeln!(
            text,
            "-A POSTROUTING -s {network}/24 -j SNAT --to-source {}-{}",
            POOL[0], POOL[1]
        );
    }
    text + "COMMIT\n"
}

/// Source-NAT rules for `nft -f`, as a list.
pub fn nftables_linear(rules: u32) -> String {
    nftables((0..rules).fold(String::new(), |mut text, rule| {
        let _ = writeln!(
            text,
            "ip saddr {}/24 snat to {}-{}",
            inside_network(rule),
            POOL[0],
            POOL[1]
        );
        text
    }))
}

/// Source-NAT rules for `nft -f`, as a map.
pub fn nftables_map(rules: u32) -> String {
    let elements: Vec<String> = (0..rules)
        .map(|rule| format!("{}/24 : {}-{}", inside_network(rule), POOL[0], POOL[1]))
        .collect();
    nftables(format!("snat ip to ip saddr map {{ {} }}\n", elements.join(", ")))
}

fn nftables(rules: String) -> String {
    format!("table ip gateway {{ chain leave {{\ntype nat hook postrouting priority 100;\n{rules}}}\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_as_many_as_asked_and_the_last_one_is_the_last_network() {
        let iptables = iptables(1_000);
        assert_eq!(1_000, iptables.matches("-j SNAT").count());
        assert!(iptables.trim_end().ends_with("203.0.113.255\nCOMMIT"));
        assert!(
            iptables
                .lines()
                .nth(1_000)
                .is_some_and(|line| line.contains("-s 10.3.231.0/24 "))
        );
        assert_eq!(1_000, nftables_linear(1_000).matches("snat to").count());
        assert_eq!(1_000, nftables_map(1_000).matches("/24 : ").count());
        assert_eq!(1, nftables_map(1_000).matches("snat ip to").count());
    }
}
