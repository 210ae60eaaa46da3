"""Compares routes by source with the kernel. After random changes the gateway must select the next hop of `ip rule
from`."""

import json
import random
from ipaddress import ip_address, ip_network

import pytest

from lab import configuration
from lab.gateway import Linux
from lab.host import Host, connect

pytestmark = pytest.mark.sluice

ROUNDS, QUESTIONS = 6, 25

# For each family: networks of sources and of destinations, gateways by interface, and an input interface of packets.
WORLDS = {
    4: {
        "from": ["192.168.1.0/24", "192.168.0.0/16", "192.168.1.128/25", "192.168.2.2/32", "10.7.0.0/16"],
        "to": ["0.0.0.0/0", "192.0.2.0/24", "192.0.0.0/16", "192.0.2.128/25", "10.8.0.0/16"],
        "via": {"198.51.100.1": "outside", "198.51.100.9": "outside", "192.168.2.77": "inside2"},
        "sources": ["192.168.1.7", "192.168.1.200", "192.168.2.2", "192.168.3.3", "10.7.1.1", "172.16.1.1"],
        "targets": ["192.0.2.7", "192.0.2.200", "192.0.9.9", "10.8.0.1", "203.0.113.200", "192.168.2.50", "198.51.100.50"],
    },
    6: {
        "from": ["2001:db8:1::/64", "2001:db8::/32", "2001:db8:1::8000/113", "2001:db8:2::2/128"],
        "to": ["::/0", "2001:db8:c::/48", "2001:db8:c:1::/64"],
        "via": {"2001:db8:a::1": "outside", "2001:db8:a::9": "outside", "2001:db8:2::77": "inside2"},
        "sources": ["2001:db8:1::7", "2001:db8:1::8007", "2001:db8:2::2", "2001:db8:7::1", "2001:dba::1"],
        "targets": ["2001:db8:c:1::7", "2001:db8:c:2::7", "2001:db9::1", "2001:db8:2::50", "2001:db8:a::50"],
    },
}


@pytest.fixture(scope="module")
def kernel(topology):
    """Linux with the gateway's interfaces and addresses."""
    made = Host("kernel", topology.folder)
    topology.hosts.append(made)
    for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0",
                    "net.ipv4.conf.default.rp_filter=0"]:
        made.setting(setting)
    for interface, addresses in Linux.ADDRESSES.items():
        connect(made, interface, made, f"{interface}-end")
        for address in addresses:
            made.run("ip", "address", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))
    return made


@pytest.fixture(scope="module")
def document():
    return configuration.standard() | {"routes": []}


def drawn(chance, world):
    """Random routes, at most one for each pair of source and destination."""
    pairs = {(chance.choice([None, *world["from"]]), chance.choice(world["to"])) for _ in range(chance.randrange(1, 12))}
    return [
        {"to": to, **({"from": source} if source else {}),
         **({"action": "blackhole"} if chance.random() < 0.15 else {"via": chance.choice(list(world["via"]))})}
        for source, to in sorted(pairs, key=str)
    ]


def lay(kernel, family, world, routes, before):
    """Install the routes in Linux, with a table for each source. Each table contains the networks of the interfaces,
    and the longest source prefix has precedence."""
    ip = ["ip", f"-{family}"]
    for source, table in before:
        kernel.run(*ip, "rule", "delete", "from", source, "table", table)
        kernel.run(*ip, "route", "flush", "table", table)
    kernel.run(*ip, "route", "flush", "table", "main", "proto", "static")
    networks = sorted({route["from"] for route in routes if "from" in route})
    tables = {source: str(100 + number) for number, source in enumerate(networks)}
    for source, table in tables.items():
        kernel.run(*ip, "rule", "add", "from", source, "table", table, "priority", 1000 - ip_network(source).prefixlen)
        for interface, addresses in Linux.ADDRESSES.items():
            for address in addresses:
                network = ip_network(address, strict=False)
                if network.version == family:
                    kernel.run(*ip, "route", "add", network, "dev", interface, "table", table)
    for route in routes:
        way = ["via", route["via"], "dev", world["via"][route["via"]]] if "via" in route else []
        kind = [] if way else ["blackhole"]
        table = tables.get(route.get("from"), "main")
        kernel.run(*ip, "route", "add", *kind, route["to"], *way, "table", table, "proto", "static")
    return list(tables.items())


def by_kernel(kernel, family, source, target):
    """Gateway and interface that the kernel selects, or `None` without a route."""
    output = kernel.run("ip", "-j", f"-{family}", "route", "get", target, "from", source, "iif", "inside1", check=False)
    try:
        found = json.loads(output)[0]
    except json.JSONDecodeError:
        return None
    if found.get("type") in ["blackhole", "unreachable"] or found.get("dev") == "lo":
        return None
    return found.get("gateway"), found["dev"]


def by_gateway(gateway, source, target):
    rows = gateway.show("routes", target, "--from", source)["routes"]
    assert len(rows) < 2
    return next(((row.get("via"), row["interface"]) for row in rows if "action" not in row), None)


@pytest.mark.parametrize("family", WORLDS)
def test_gateway_chooses_what_the_kernel_does(gateway, kernel, document, family):
    chance, world, before, ways = random.Random(family), WORLDS[family], [], set()
    for _ in range(ROUNDS):
        routes = drawn(chance, world)
        gateway.apply(document | {"routes": routes})
        before = lay(kernel, family, world, routes, before)
        pairs = [(chance.choice(world["sources"]), chance.choice(world["targets"])) for _ in range(QUESTIONS)]
        for source, target in pairs:
            assert ip_address(source).version == family
            expected = by_kernel(kernel, family, source, target)
            assert expected == by_gateway(gateway, source, target), (source, target, routes)
            ways.add(expected)
    # The results include each gateway, connected networks, and missing routes.
    assert len(ways) > len(world["via"]) + 1
