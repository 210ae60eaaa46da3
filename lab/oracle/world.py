"""Rules with which both systems are configured, and a simple reference evaluation of these rules."""

import dataclasses
import ipaddress

from lab import configuration
from lab.oracle.filter import Filter

INSIDE = ("inside1", "inside2")
INTERFACES = (*INSIDE, "outside")
# For each interface: the gateway's address, the neighbour that forwards to all hosts behind the interface, and the
# networks of these hosts.
LINKS = {
    "inside1": ("192.168.1.1", "192.168.1.2", "10.0.0.0/9"),
    "inside2": ("192.168.2.1", "192.168.2.2", "10.128.0.0/9"),
    "outside": ("198.51.100.1", "198.51.100.2", "0.0.0.0/0"),
}
# The corresponding values for IPv6.
LINKS6 = {
    "inside1": ("fd00:0:0:1::1", "fd00:0:0:1::2", "2001:db8::/33"),
    "inside2": ("fd00:0:0:2::1", "fd00:0:0:2::2", "2001:db8:8000::/33"),
    "outside": ("fd00:0:0:3::1", "fd00:0:0:3::2", "::/0"),
}
OWN = [own for links in (LINKS, LINKS6) for own, _, _ in links.values()]
GATEWAY_MAC = {name: f"02:00:00:00:00:0{number}" for number, name in enumerate(INTERFACES, 1)}
NEIGHBOUR_MAC = {name: f"02:00:00:00:01:0{number}" for number, name in enumerate(INTERFACES, 1)}
MOST_PORTS = 8


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool with its addresses, as ranges of first and last, and its allocated ports."""

    name: str
    ranges: tuple
    ports: tuple = (1024, 65535)

    @property
    def addresses(self):
        return [str(address) for first, last in self.ranges for address in _between(first, last)]


@dataclasses.dataclass(frozen=True)
class Source:
    """A source rule. If packets from a network leave through a given interface, or through any interface, the rule
    translates their source to an address of a pool."""

    prefix: str
    out: str | None
    pool: Pool

    @property
    def length(self):
        return int(self.prefix.split("/")[1])


@dataclasses.dataclass(frozen=True)
class Destination:
    """A destination rule. It forwards ports of an outside address to an inside host, or ports of any address on an
    interface to any host."""

    protocol: str
    address: str | None
    first: int
    last: int
    to: str
    to_first: int
    incoming: str | None = None

    def matches(self, protocol, address, port, near):
        """Whether the rule applies to packets that arrive on an interface."""
        # This module does not test forwarded ports from the inside.
        wanted = self.incoming or "outside"
        return self.protocol == protocol and self.address in (None, address) and near == wanted and self.first <= port <= self.last


@dataclasses.dataclass(frozen=True)
class World:
    """A set of rules for both systems."""

    pools: tuple = ()
    sources: tuple = ()
    destinations: tuple = ()
    outside_mtu: int = 1500
    shards: int = 16
    filter: Filter | None = None
    six: bool = False

    @property
    def links(self):
        """The constants of the world's address family."""
        return LINKS6 if self.six else LINKS

    @property
    def tracks(self):
        """Whether Linux tracks connections."""
        return self.filter is None or self.filter.sessions

    def pool_of(self, address):
        """The name of the pool that contains an address."""
        return next((pool.name for pool in self.pools if address in pool.addresses), None)

    def pool_addresses(self):
        return [address for pool in self.pools for address in pool.addresses]

    def source(self, address, out):
        """The applicable source rule with the longest prefix. A rule with an interface precedes a rule without."""
        for rule in self.ordered_sources():
            if rule.out in (None, out) and ipaddress.ip_address(address) in ipaddress.ip_network(rule.prefix):
                return rule
        return None

    def destination(self, protocol, address, port, near):
        """The destination rule that applies to a packet that arrives on an interface."""
        rules = self.ordered_destinations()
        return next((rule for rule in rules if rule.matches(protocol, address, port, near)), None)

    def ordered_sources(self):
        """Source rules with the most specific rule first, because Linux uses the first match."""
        return sorted(self.sources, key=lambda rule: (-rule.length, rule.out is None))

    def ordered_destinations(self):
        """Destination rules. Rules with an address precede rules without. In each group, rules with fewer ports come
        first."""
        return sorted(self.destinations, key=lambda rule: (rule.address is None, rule.last - rule.first))

    def document(self):
        """The configuration of Sluice."""
        interfaces = {
            name: {"device": "null:", "addresses": [f"{own}/{64 if self.six else 24}"], "mac": GATEWAY_MAC[name]}
            for name, (own, _, _) in self.links.items()
        }
        interfaces["outside"]["mtu"] = self.outside_mtu
        filter_table = {"filter": self.filter.document(self.six)} if self.filter else {}
        return filter_table | {
            "system": {"workers": 1, "shards": self.shards},
            "sessions": {"ipv4": 64, "ipv6": 65536} if self.six else {"ipv4": 65536, "ipv6": 64},
            "gateway": {"icmp-errors": {"rate": 1_000_000, "burst": 1_000_000}},
            "interfaces": interfaces,
            "routes": [{"to": network, "via": neighbour} for _, neighbour, network in self.links.values()],
            "neighbours": {
                "static": [
                    {"address": neighbour, "mac": NEIGHBOUR_MAC[name]} for name, (_, neighbour, _) in self.links.items()
                ]
            },
            "nat": {
                "pools": {
                    pool.name: {
                        "addresses": [first if first == last else f"{first}-{last}" for first, last in pool.ranges],
                        "ports": f"{pool.ports[0]}-{pool.ports[1]}",
                        # The behaviour equals that of Linux.
                        "mapping": "address-and-port-dependent",
                    }
                    for pool in self.pools
                },
                "source": [
                    {"from": rule.prefix, "pool": rule.pool.name} | ({"out": rule.out} if rule.out else {})
                    for rule in self.sources
                ],
                "destination": [
                    {
                        "protocol": rule.protocol,
                        "port": rule.first if rule.first == rule.last else f"{rule.first}-{rule.last}",
                        "to": rule.to, "to-port": rule.to_first,
                    }
                    | ({"address": rule.address} if rule.address else {})
                    | ({"in": rule.incoming} if rule.incoming else {})
                    for rule in self.destinations
                ],
            },
        }

    def text(self):
        """The configuration of Sluice as a file."""
        return configuration.text(self.document())

    def nftables(self, before=()):
        """The rules in nftables; the filter's chain begins with the given lines. Packets that connection tracking
        considers invalid are routed to a separate output."""
        family, time = ("ip6", "hoplimit") if self.six else ("ip", "ttl")
        lines = ["flush ruleset", f"table {family} oracle {{"]
        if self.filter:
            lines += self.filter.nftables(before, self.six)
        if not self.tracks:
            return "\n".join([*lines, "}", ""])
        invalid = f"ct state invalid meta mark set 1 {family} {time} set 64"
        lines += ["chain invalid { type filter hook prerouting priority -150;", invalid, "}"]
        lines += ["chain destination { type nat hook prerouting priority dstnat;"]
        for rule in self.ordered_destinations():
            for port in range(rule.first, rule.last + 1):
                to = rule.to_first + port - rule.first
                address = f"ip daddr {rule.address} " if rule.address else ""
                near = rule.incoming or "outside"
                lines.append(f'iifname "{near}" {address}{rule.protocol} dport {port} dnat to {rule.to}:{to}')
        lines += ["}", "chain source { type nat hook postrouting priority srcnat;"]
        for rule in self.ordered_sources():
            out = f'oifname "{rule.out}" ' if rule.out else ""
            count = len(rule.pool.ranges)
            for number, (first, last) in enumerate(rule.pool.ranges):
                share = f"jhash ip saddr mod {count} seed 0x1 == {number} " if count > 1 else ""
                match = f"{out}ip saddr {rule.prefix} {share}"
                to = first if first == last else f"{first}-{last}"
                low, high = rule.pool.ports
                lines.append(f"{match}meta l4proto {{ tcp, udp }} snat to {to}:{low}-{high} persistent")
                lines.append(f"{match}snat to {to} persistent")
        return "\n".join([*lines, "}", "}", ""])


def _between(first, last):
    low, high = int(ipaddress.ip_address(first)), int(ipaddress.ip_address(last))
    return [ipaddress.ip_address(number) for number in range(low, high + 1)]


def _address(pick, prefix):
    network = ipaddress.ip_network(prefix)
    return str(network[pick.randrange(network.num_addresses)])


def random_host(pick, world):
    """An inside host, usually in the network of a rule, and never the first or last address of the whole network."""
    networks = [rule.prefix for rule in world.sources if rule.length >= 8]
    prefix = pick.choice(networks) if networks and pick.random() < 0.8 else pick.choice(["10.0.0.0/9", "10.128.0.0/9"])
    return _address(pick, prefix)


def side_of(address):
    """The interface towards an address."""
    links = LINKS6 if ":" in address else LINKS
    for name in INSIDE:
        if ipaddress.ip_address(address) in ipaddress.ip_network(links[name][2]):
            return name
    return "outside"


def random_world(pick):
    """A random world with few or many rules."""
    pools = _pools(pick)
    prefixes, sources = [], {}
    for _ in range(pick.choice([1, 1, 2, 3, 5, 8, 13, 34])):
        prefix = _prefix(pick, prefixes)
        out = "outside" if prefix == "0.0.0.0/0" else pick.choice(["outside"] * 6 + [None, None, "inside2"])
        prefixes.append(prefix)
        sources.setdefault((prefix, out), Source(prefix, out, pick.choice(pools)))
    used = tuple({rule.pool.name: rule.pool for rule in sources.values()}.values())
    return World(
        pools=used,
        sources=tuple(sources.values()),
        destinations=_destinations(pick, used) + _destinations_of_interfaces(pick),
        outside_mtu=pick.choice([1500, 1500, 1400, 1280, 576]),
        shards=pick.choice([1, 4, 16]),
    )


def _pools(pick):
    free = list(range(1, 255))
    pools = []
    for number in range(pick.choice([1, 2, 3])):
        ranges = []
        for _ in range(pick.choice([1, 1, 2, 4])):
            length = pick.choice([1, 1, 2, 5])
            at = pick.randrange(len(free) - length)
            chosen = free[at : at + length]
            if chosen[-1] - chosen[0] != length - 1:
                chosen = chosen[:1]
            free = [last for last in free if last not in chosen]
            ranges.append((f"203.0.113.{chosen[0]}", f"203.0.113.{chosen[-1]}"))
        ports = pick.choice([(1024, 65535), (1024, 65535), (1024, 65535), (10000, 39999), (20001, 60007)])
        pools.append(Pool(f"pool{number}", tuple(ranges), ports))
    return pools


def _prefix(pick, earlier):
    """A prefix of random length, usually within an earlier prefix."""
    length = pick.choice([0, *range(8, 33), 16, 24, 24, 32])
    if length == 0:
        return "0.0.0.0/0"
    around = pick.choice(earlier) if earlier and pick.random() < 0.6 else "10.0.0.0/8"
    if ipaddress.ip_network(around).prefixlen > length or around == "0.0.0.0/0":
        around = "10.0.0.0/8"
    return str(ipaddress.ip_network(f"{_address(pick, around)}/{length}", strict=False))


def _destinations(pick, pools):
    """Forwarded ports of separate addresses, and of pool addresses where the pool does not allocate these ports."""
    rules, taken = [], {}
    pool = pick.choice(pools)
    addresses = ["203.0.114.7", "203.0.114.8", pick.choice(pool.addresses)]
    for _ in range(pick.choice([0, 1, 2, 4, 8])):
        protocol, address = pick.choice(["tcp", "udp"]), pick.choice(addresses)
        first = pick.choice([80, 443, 500, pick.randrange(1, 1000)])
        last = first + pick.choice([0, 0, 0, pick.randrange(MOST_PORTS)])
        ranges = taken.setdefault((protocol, address), [])
        if any(first <= other[1] and other[0] <= last for other in ranges):
            continue
        ranges.append((first, last))
        to = _address(pick, pick.choice(["10.0.0.0/9", "10.128.0.0/9"]))
        rules.append(Destination(protocol, address, first, last, to, pick.choice([first, 8080, 40000])))
        if last > first + 1:
            # One port of the range has another target, because the rule with the fewest ports comes first.
            rules.append(Destination(protocol, address, first + 1, first + 1, to, 9999))
    return tuple(rules)


def _destinations_of_interfaces(pick):
    """Destination rules of an interface for any address. From outside they lead to inside hosts, and from inside to
    any host."""
    rules = []
    for incoming in INTERFACES:
        for protocol in ("tcp", "udp"):
            if pick.random() < 0.7:
                continue
            first = pick.choice([53, 80, 443, pick.randrange(1, 1000)])
            last = first + pick.choice([0, 0, pick.randrange(MOST_PORTS)])
            far = incoming != "outside" and pick.random() < 0.5
            to = _address(pick, "198.18.0.0/15" if far else pick.choice(["10.0.0.0/9", "10.128.0.0/9"]))
            rules.append(Destination(protocol, None, first, last, to, pick.choice([first, 8080, 40000]), incoming))
    return tuple(rules)
