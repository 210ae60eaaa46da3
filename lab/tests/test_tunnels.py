"""Tests tunnels of every type, between two Sluice gateways, with Linux if it supports the type, and with tshark as
the decoder."""

import copy
import os
import re

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.pings import answered, unanswered
from lab.topology import Offices

pytestmark = pytest.mark.sluice

# Type, identifier, family of the outer packets, and encapsulation overhead in bytes.
TUNNELS = [
    ("vxlan", 42, 4, 50), ("vxlan", 43, 6, 70), ("gre", None, 4, 24), ("gre", 7, 4, 28), ("gre", None, 6, 44),
    ("ipip", None, 4, 20), ("ipip", None, 6, 40),
]
EVERY = range(1, len(TUNNELS) + 1)
NARROW = 1400


def end(number, family):
    return f"192.0.{number}.1" if family == 4 else f"2001:db8:f00{number}::1"


def configuration(side):
    """Configuration of an office's gateway. Each tunnel leads to a network of the other office, and an additional
    tunnel leads to Linux."""
    own, other = Offices.SIDES[side], 3 - Offices.SIDES[side]
    interfaces = {
        "lan": {
            "device": "lan", "router": "office",
            "addresses": [f"10.{own}.{n}.1/24" for n in EVERY] + [f"2001:db8:{own}:{n}::1/64" for n in EVERY],
        },
        "wan": {"device": "wan", "addresses": [f"192.0.{own}.1/24", f"2001:db8:f00{own}::1/64"]},
    }
    routes = []
    for number, (kind, identifier, family, _) in enumerate(TUNNELS, 1):
        tunnel = {"type": kind, "local": end(own, family), "remote": end(other, family)}
        if identifier is not None:
            tunnel["id"] = identifier
        interfaces[f"tunnel{number}"] = {
            "tunnel": tunnel, "router": "office",
            "addresses": [f"10.9{number}.0.{own}/24", f"2001:db8:9{number}::{own}/64"],
        }
        routes += [
            {"to": f"10.{other}.{number}.0/24", "via": f"10.9{number}.0.{other}"},
            {"to": f"2001:db8:{other}:{number}::/64", "via": f"2001:db8:9{number}::{other}"},
        ]
    return {
        "system": {"name": side, "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": f"/run/lab/{side}", "log": "debug"},
        "interfaces": interfaces,
        "routes": [
            {"to": "0.0.0.0/0", "via": f"192.0.{own}.254"}, {"to": "::/0", "via": f"2001:db8:f00{own}::fe"},
        ],
        "routers": {"office": {"routes": routes}},
    }


@pytest.fixture(scope="module")
def topology():
    made = Offices(len(TUNNELS), narrow=NARROW)
    server = made.offices["left"]
    folder = os.path.join(made.folder, "served")
    os.makedirs(folder)
    with open(os.path.join(folder, "file"), "wb") as file:
        file.write(bytes(1 << 20))
    server.spawn("python3", "-m", "http.server", "80", "--bind", "::", "--directory", folder)
    server.wait_listening(80)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def gateways(topology, binary):
    made = {side: Sluice(topology.gateways[side], binary, configuration(side)) for side in Offices.SIDES}
    for gateway in made.values():
        gateway.start()
    yield made
    for gateway in made.values():
        gateway.stop()


@pytest.fixture
def host(topology, gateways):
    """The host of the left office."""
    return topology.offices["left"]


def ping(host, number, *words, family=4, check=True):
    target = f"10.2.{number}.2" if family == 4 else f"2001:db8:2:{number}::2"
    source = f"10.1.{number}.2" if family == 4 else f"2001:db8:1:{number}::2"
    return host.run("ping", "-I", source, "-W3", *words, target, check=check)


def test_ping_of_both_families_goes_through_every_tunnel_and_comes_back_by_it(host, gateways):
    before = {row["name"]: row for row in gateways["left"].show("interfaces")["interfaces"]}
    for number in EVERY:
        for family in [4, 6]:
            assert answered(ping(host, number, "-c3", "-i0.2", "-w9", family=family), 3), (number, family)
    for row in gateways["left"].show("interfaces")["interfaces"]:
        if row["name"].startswith("tunnel"):
            received, sent = [row[key] - before[row["name"]][key] for key in ["received", "sent"]]
            assert 6 <= received and 6 <= sent, row


def test_ends_are_shown_with_their_interface_and_their_neighbour(host, gateways):
    ping(host, 4, "-c1")
    interfaces = {row["name"]: row for row in gateways["left"].show("interfaces")["interfaces"]}
    assert "vxlan 42 192.0.1.1 > 192.0.2.1 port 4789" == interfaces["tunnel1"]["device"]
    assert "gre 7 192.0.1.1 > 192.0.2.1" == interfaces["tunnel4"]["device"]
    assert "ipip 2001:db8:f001::1 > 2001:db8:f002::1" == interfaces["tunnel7"]["device"]
    assert [1500 - overhead for _, _, _, overhead in TUNNELS] == [interfaces[f"tunnel{n}"]["mtu"] for n in EVERY]
    neighbours = gateways["left"].show("neighbours", "--router", "office")["neighbours"]
    assert ["192.0.2.1"] == [row["address"] for row in neighbours if row["interface"] == "tunnel4"]


def test_path_that_takes_less_than_the_tunnel_is_found_out_and_the_sender_is_told(host, gateways):
    for number, (_, _, _, overhead) in enumerate(TUNNELS, 1):
        fits = NARROW - overhead
        # The packet has the configured MTU of the tunnel. The network between the offices drops it, and the gateway
        # answers the next packet with an error.
        long = ["-M", "do", "-s", str(1500 - overhead - 28), "-c1"]
        waiting.until(
            lambda number=number, long=long, fits=fits:
                re.search(rf"mtu ?= ?{fits}\b", ping(host, number, *long, check=False)),
            f"tunnel {number} to tell {fits}", 20,
        )
        host.run("ip", "route", "flush", "cache")
        assert "1 received" in ping(host, number, "-M", "do", "-s", str(fits - 28), "-c1"), number
        # Packets that may be fragmented are fragmented.
        assert "1 received" in ping(host, number, "-M", "dont", "-s", "1472", "-c1"), number
    cores = gateways["left"].show("cores")["cores"]
    lowered = sum(counter["count"] for core in cores for counter in core["counters"]
                  if counter["name"] == "path-mtus-lowered")
    # The path MTU is lowered once for each family, because all tunnels use the same path.
    assert 2 <= lowered


def test_file_comes_through_every_tunnel_over_both_families(topology, gateways):
    for number in EVERY:
        for own, server in [(f"10.2.{number}.2", f"10.1.{number}.2"),
                            (f"2001:db8:2:{number}::2", f"[2001:db8:1:{number}::2]")]:
            size = topology.offices["right"].run(
                "curl", "-sS", "--max-time", "30", "-o", "/dev/null", "-w", "%{size_download}",
                "--interface", own, f"http://{server}/file",
            )
            assert str(1 << 20) == size, (number, server)


def test_what_leaves_is_read_by_tshark_as_what_it_is(topology, gateways, host):
    path = os.path.join(topology.folder, "outer.pcap")
    seen = topology.between.spawn("tcpdump", "-U", "-n", "-Z", "root", "-i", "left", "-w", path, label="outer")
    waiting.until(lambda: os.path.exists(path) and os.path.getsize(path) >= 24, "the capture to begin")
    for number in EVERY:
        for family in [4, 6]:
            ping(host, number, "-c1", "-Q", "0x48", family=family)
    fields = ["frame.protocols", "vxlan.vni", "gre.key", "ip.dsfield.dscp", "_ws.malformed", "ip.flags.df"]
    named = [word for field in fields for word in ("-e", field)]

    def read():
        options = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
        lines = topology.between.run("tshark", "-n", "-r", path, *options, "-Y", "icmp.type == 8 || icmpv6.type == 128",
                                     "-T", "fields", *named).splitlines()
        return [dict(zip(fields, line.split("\t"))) for line in lines if "\t" in line]

    waiting.until(lambda: len(read()) >= 2 * len(TUNNELS), "all requests to be seen")
    bad = topology.between.run(
        "tshark", "-n", "-r", path, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
        "-Y", "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0",
    )
    assert [] == [line for line in bad.splitlines() if not line.startswith("Running as user")]
    rows = read()
    chains = {row["frame.protocols"].removeprefix("eth:ethertype:").replace(":data", "") for row in rows}
    for outer in ["ip", "ipv6"]:
        for inner in ["ip:icmp", "ipv6:icmpv6"]:
            for wanted in [f"{outer}:udp:vxlan:eth:ethertype:{inner}", f"{outer}:gre:{inner}", f"{outer}:{inner}"]:
                assert wanted in chains, (wanted, chains)
    assert {"42", "43"} == {row["vxlan.vni"] for row in rows} - {""}
    assert {"0x00000007"} == {row["gre.key"] for row in rows} - {""}
    # All outer and inner IPv4 headers have the code point of the host's packets.
    assert {"18"} == {point for row in rows for point in row["ip.dsfield.dscp"].split(",")} - {""}
    seen.stop()


@pytest.mark.parametrize("family", [4, 6])
def test_linux_is_the_other_end_of_a_vxlan(topology, gateways, host, family):
    gateway, linux = gateways["left"], topology.linux
    changed = copy.deepcopy(configuration("left"))
    changed["interfaces"]["linux"] = {
        "tunnel": {"type": "vxlan", "local": end(1, family), "remote": end(3, family), "id": 100 + family, "port": 8472},
        "router": "office", "addresses": ["10.77.0.1/24", "2001:db8:77::1/64"],
    }
    gateway.apply(changed)
    linux.run("ip", "link", "add", "office", "type", "vxlan", "id", str(100 + family), "dstport", "8472",
              "local", end(3, family), "remote", end(1, family), "dev", "eth0")
    try:
        linux.run("ip", "link", "set", "office", "up", "mtu", str(1500 - (50 if family == 4 else 70)))
        linux.run("ip", "address", "add", "10.77.0.2/24", "dev", "office")
        linux.run("ip", "-6", "address", "add", "2001:db8:77::2/64", "dev", "office", "nodad")
        linux.run("ip", "route", "add", "10.1.0.0/16", "via", "10.77.0.1")
        linux.run("ip", "-6", "route", "add", "2001:db8:1::/48", "via", "2001:db8:77::1")
        full = str(1500 - (50 if family == 4 else 70) - 28)
        for words in [["10.77.0.2"], ["2001:db8:77::2"], ["-M", "do", "-s", full, "10.77.0.2"]]:
            assert answered(host.run("ping", "-c3", "-i0.2", "-w9", *words), 3), words
        for target in ["10.1.1.2", "10.77.0.1", "2001:db8:1:1::2", "2001:db8:77::1"]:
            assert answered(linux.run("ping", "-c3", "-i0.2", "-w9", target), 3), target
        # Packets with another network identifier belong to no tunnel.
        before = gateway.drops().get("unknown-tunnel", 0)
        linux.run("ip", "link", "add", "stranger", "type", "vxlan", "id", "999", "dstport", "8472",
                  "local", end(3, family), "remote", end(1, family), "dev", "eth0")
        linux.run("ip", "link", "set", "stranger", "up")
        linux.run("ip", "address", "add", "10.78.0.2/24", "dev", "stranger")
        linux.run("ping", "-c1", "-W1", "10.78.0.1", check=False)
        gateway.wait_for_drop("unknown-tunnel", before)
    finally:
        for name in ["office", "stranger"]:
            linux.run("ip", "link", "delete", name, check=False)
        gateway.apply(configuration("left"))


def test_tunnel_that_goes_takes_nothing_of_the_others_with_it_and_comes_back(host, gateways):
    gateway = gateways["left"]
    changed = copy.deepcopy(configuration("left"))
    del changed["interfaces"]["tunnel3"]
    routes = changed["routers"]["office"]["routes"]
    changed["routers"]["office"]["routes"] = [
        row for row in routes if not row["via"].startswith(("10.93.", "2001:db8:93:"))
    ]
    flood = host.spawn("ping", "-I", "10.1.4.2", "-i0.01", "-c200", "-w20", "10.2.4.2", label="others")
    gateway.apply(changed)
    assert "0 received" in ping(host, 3, "-c1", check=False)
    gateway.apply(configuration("left"))
    waiting.until(lambda: "1 received" in ping(host, 3, "-c1", check=False), "the tunnel to be back", 10)
    flood.wait(20)
    assert [] == unanswered(flood.output, 200)
