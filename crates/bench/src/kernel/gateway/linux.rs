//! Linux as the gateway in its best configuration: one core receives by RPS, or each core receives what its own
//! generator sends, and packets pass no unnecessary hooks. The same setup is used for Linux in virtual machines.

use super::Case;
use crate::kernel::topology::{
    GENERATOR_ADDRESS, GENERATOR_MAC, INSIDE, INSIDE_ADDRESS, INSIDE_NETWORKS, OUTSIDE, OUTSIDE_ADDRESS, POOL,
    SINK_ADDRESS, SINK_MAC, inside_network, mac_text,
};

/// Shell script that sets up the gateway for a case, if its interfaces are up.
pub fn script(case: Case, rules: u32) -> String {
    // The iptables that uses its own kernel modules is faster than the one that uses nftables.
    let restore = "$(command -v iptables-legacy-restore || echo iptables-restore)";
    match case {
        Case::Generator => fed("nft -f -", &drop_all()),
        Case::Redirect => [(INSIDE, OUTSIDE), (OUTSIDE, INSIDE)].map(redirect).concat(),
        Case::Iptables => forward() + &fed(restore, &iptables(rules)),
        Case::NftablesLinear => forward() + &fed("nft -f -", &nftables_linear(rules)),
        Case::NftablesMap => forward() + &fed("nft -f -", &nftables_map(rules)),
        Case::LinuxForward | Case::SluiceForward | Case::Sluice => forward(),
    }
}

/// Script that runs a command with a text as its input.
fn fed(command: &str, input: &str) -> String {
    format!("{command} <<'END'\n{input}END\n")
}

/// Script for a forwarding kernel: settings, addresses, neighbours and routes.
fn forward() -> String {
    let (generator, sink) = (mac_text(GENERATOR_MAC), mac_text(SINK_MAC));
    let setting =
        |interface| format!("net.ipv4.conf.{interface}.rp_filter=0 net.ipv4.conf.{interface}.send_redirects=0");
    let settings = ["all", "default", INSIDE, OUTSIDE].map(setting).join(" ");
    format!(
        "sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.ip_early_demux=0 {settings}
ip address add {INSIDE_ADDRESS} dev {INSIDE}
ip address add {OUTSIDE_ADDRESS} dev {OUTSIDE}
ip neighbour add {GENERATOR_ADDRESS} lladdr {generator} dev {INSIDE} nud permanent
ip neighbour add {SINK_ADDRESS} lladdr {sink} dev {OUTSIDE} nud permanent
ip route add {INSIDE_NETWORKS} via {GENERATOR_ADDRESS}
ip route add default via {SINK_ADDRESS}
"
    )
}

fn redirect((from, to): (&str, &str)) -> String {
    format!(
        "tc qdisc add dev {from} clsact
tc filter add dev {from} ingress protocol all u32 match u32 0 0 action mirred egress redirect dev {to}
"
    )
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
fn iptables(rules: u32) -> String {
    let [first, last, _] = POOL;
    let rule = |rule| {
        format!(
            "-A POSTROUTING -s {}/24 -j SNAT --to-source {first}-{last}\n",
            inside_network(rule)
        )
    };
    format!("*nat\n{}COMMIT\n", (0..rules).map(rule).collect::<String>())
}

/// Source-NAT rules for `nft -f`, as a list.
fn nftables_linear(rules: u32) -> String {
    let [first, last, _] = POOL;
    let rule = |rule| format!("ip saddr {}/24 snat to {first}-{last}\n", inside_network(rule));
    nftables((0..rules).map(rule).collect())
}

/// Source-NAT rules for `nft -f`, as a map.
fn nftables_map(rules: u32) -> String {
    let [first, last, _] = POOL;
    let element = |rule| format!("{}/24 : {first}-{last}", inside_network(rule));
    let elements: Vec<String> = (0..rules).map(element).collect();
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
