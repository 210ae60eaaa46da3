//! What to do about a problem: a line for each.

use super::{Problem, list, meant};

impl Problem {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Form { hint, .. } => return hint.clone(),
            Self::UnknownKey { key, known } => meant(key, known),
            Self::MissingKey(key) => format!("add `{key} = …`"),
            Self::OutOfRange { range, .. } => format!("it goes from {range}"),
            Self::NoWorkers => "write a number such as 1, or cores such as [2, 3]".into(),
            Self::TooManyWorkers { .. } => "use fewer, or leave the key out for one".into(),
            Self::UnknownCore { cores, .. } => format!("cores are {}", list(cores)),
            Self::DuplicateCore(_) => "each worker has a core of its own".into(),
            Self::Stage(problem) => problem.hint(),
            Self::Router(problem) => problem.hint(),
            Self::Route(problem) => problem.hint(),
            Self::Destination(problem) => problem.hint(),
            Self::Tunnel(problem) => problem.hint(),
            Self::Uplink(problem) => problem.hint(),
            Self::Chain(problem) => problem.hint(),
            Self::Bridge(problem) => problem.hint(),
            Self::Inspection(problem) => problem.hint(),
            Self::Subscribers(problem) => problem.hint(),
            Self::ShardsNotPowerOfTwo(shards) => {
                format!(
                    "the nearest is {}",
                    shards.max(&1).checked_next_power_of_two().unwrap_or(1 << 15)
                )
            }
            Self::FewerShardsThanWorkers { workers, .. } => {
                format!("write at least `shards = {}`", workers.next_power_of_two())
            }
            Self::MemoryExceeded { fits, .. } => format!("at most {fits} fit"),
            Self::MemoryExceededTogether { .. } => {
                "lower `sessions.ipv4`, `sessions.ipv6` or `system.ring`; `sluice check` prints the memory of each table".into()
            }
            Self::TimeoutBelowMinimum { .. } => "hosts rely on the minimum; raise it, or leave it out".into(),
            Self::NoInterfaces => "add a table such as [interfaces.inside] with `device = \"eth1\"`".into(),
            Self::Name(_) => "names have 1 to 32 letters, digits, `-`, `_` and `.`".into(),
            Self::NothingBehind(_) => {
                "add `device = \"eth1\"`, `bond = { members = […] }`, or `parent` and `vlan`".into()
            }
            Self::SeveralBehind(_) => "keep one of them".into(),
            Self::VlanWithoutParent => "add `parent = \"…\"`, the interface that carries the tagged frames".into(),
            Self::OnlyOnVlan(_) => "leave it out: frames of this interface have no tags".into(),
            Self::ParentWithoutVlan => "add `vlan = \"100\"`".into(),
            Self::ParentIsVlan(_) => {
                "name the interface with the device, and write both tags: `vlan = \"100.200\"`".into()
            }
            Self::DuplicateTags { .. } => "each VLAN is one interface".into(),
            Self::NotOnVlan(_) => "set it on the parent".into(),
            Self::DuplicateDevice { .. } => {
                "several networks on one link: more `addresses`, or VLANs with `parent`".into()
            }
            Self::EmptyBond => "write `members = [\"eth1\", \"eth2\"]`".into(),
            Self::NotBondable(_) => "members are kernel interfaces and PCI cards".into(),
            Self::UnknownInterface { name, known } => meant(name, known),
            Self::MtuTooSmallForIpv6(_) => {
                "IPv6 needs 1280 (RFC 8200, 5); raise it, or take the IPv6 addresses away".into()
            }
            Self::MtuAboveParent { .. } => "lower it, or raise that of the parent".into(),
            Self::MoreQueuesThanWorkers { workers, .. } => {
                format!("at most {workers}, the number of `system.workers`: each reads one")
            }
            Self::UnusableAddress { .. } => "write an address that one host can have".into(),
            Self::DuplicateAddress { .. } => "an address belongs to one interface".into(),
            Self::OverlappingLinks { .. } => "hosts of one network are on one link; split it by longer prefixes".into(),
            Self::NothingToAnnounce(_) => "add an IPv6 address with /64, or take `router-advertisements` away".into(),
            Self::NotAutonomous(_) => "use a /64 (RFC 4862, 5.5.3), or set `autonomous = false`".into(),
            Self::NotIpv4(_) => "translation is between IPv4 addresses; IPv6 is routed as it is".into(),
            Self::PreferredBeyondValid => "lower it (RFC 4861, 4.6.2)".into(),
            Self::FamiliesDiffer { .. } => "give an IPv6 gateway".into(),
            Self::NotAttached { links, .. } if links.is_empty() => "no interface has an address of its family".into(),
            Self::NotAttached { links, .. } => format!(
                "links are {}; name the `interface` of one beyond them, of a gateway with `onlink = true` or a route to it by that interface",
                list(links)
            ),
            Self::AttachedElsewhere { on, .. } => format!("write `interface = \"{on}\"`, or leave it out"),
            Self::LinkLocalNeedsInterface(_) => "add `interface = \"…\"`".into(),
            Self::OwnAddress(_) => "write the address of the other host".into(),
            Self::DuplicateNeighbour(_) => "keep one of them".into(),
            Self::UnknownPool { name, known } => meant(name, known),
            Self::EmptyPool(_) => "write `addresses = [\"198.51.100.0/28\"]`".into(),
            Self::PoolsOverlap { .. } => "each address belongs to one pool".into(),
            Self::PoolHoldsInsideAddress { .. } => {
                "a pool may hold an address only of the interface that its rules lead `out` by".into()
            }
            Self::PoolHoldsBroadcast { .. } => "leave it out: write a range instead of the prefix".into(),
            Self::Pool(problem) => problem.hint(),
            Self::Filter(problem) => problem.hint(),
            Self::UnusedPool(name) => format!("add a [[nat.source]] with `pool = \"{name}\"`, or take the pool away"),
            Self::DuplicateSource(_) => {
                "keep one of them; a longer prefix or a named interface would be more specific".into()
            }
            Self::ForwardsLentPort { pool, .. } => {
                format!("leave room beside the pool, such as `ports = \"16384-65535\"` in [nat.pools.{pool}]")
            }
            Self::TooManyPorts(_) => "at most 8 can".into(),
            Self::DestinationsOverlap { .. } => "each port has one rule; only a range within another may differ".into(),
            Self::PortsOverflow { .. } => "lower `to-port`".into(),
            Self::TargetPortAlone => "add `port`, or take `to-port` away: then each port stays".into(),
            Self::StaticSizes { .. } => "give both the same prefix length".into(),
            Self::StaticInPool { pool, .. } => {
                format!("take the addresses out of [nat.pools.{pool}], which would give them to others")
            }
            Self::StaticsOverlap(_) => "an outside address leads to one host".into(),
            Self::ExemptEnds => {
                "`to` is where packets go, `from` where they come from; write two rules for both".into()
            }
            Self::ExemptKey(key, _) => format!("take `{key}` away"),
        };
        (!hint.is_empty()).then_some(hint)
    }
}
