"""Tests that a flood of one virtual router does not affect another router, with separate devices and with VLANs of
one device."""

import re
import socket
import time

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.pings import none_lost
from lab.topology import Customers
from lab.wire import ICMP, IP, UDP, Dot1Q, Ether, Raw, Wire

pytestmark = pytest.mark.sluice

FLOODING, QUIET = Customers.NAMES
# Rate limit of the flooding router in packets per second, and its burst.
RATE = 50
FLOOD, PART = 5000, 100
SINK = 9000
# Address of the sender of tagged packets.
TAGGED = "10.0.0.9"
VLANS = {"green": 7, "yellow": 8}
WEIGHTS = {"green": 10, "yellow": 30}
ECHOES = 50


@pytest.fixture(scope="module")
def topology():
    made = Customers()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def document(topology):
    interfaces, routers = {}, {}
    for name in Customers.NAMES:
        for end, address in [("in", "10.0.0.1/24"), ("out", "198.51.100.2/25")]:
            device = f"{name}-{end}"
            interfaces[device] = {"device": device, "router": name, "addresses": [address]}
        routers[name] = {}
    routers[FLOODING]["limits"] = {"rate": {"packets": RATE, "burst": "1s"}}
    for name, vlan in VLANS.items():
        interfaces[name] = {"parent": f"{QUIET}-in", "vlan": vlan, "router": name, "addresses": ["10.0.0.1/24"]}
        routers[name] = {"share": {"weight": WEIGHTS[name]}}
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": interfaces,
        "routers": routers,
        # The neighbour is static, because no host answers requests for its address.
        "neighbours": {"static": [
            {"address": TAGGED, "mac": topology.customers[QUIET].mac(), "interface": name} for name in VLANS
        ]},
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    for server in topology.servers.values():
        server.run("ip", "route", "add", "10.0.0.0/24", "via", "198.51.100.2")
    made = Sluice(topology.gateway, binary, document)
    made.start()
    yield made
    made.stop()


def router(gateway, name):
    """The output of `show routers` for a router, with its drops by name."""
    row = gateway.show("routers", "--router", name)["routers"][0]
    return row | {"drops": {drop["name"]: drop["count"] for drop in row.get("drops", [])}}


def rate_limited(gateway, name):
    return router(gateway, name)["drops"].get("rate-limited", 0)


@pytest.fixture
def sinks(topology):
    """The receiving sockets of both servers."""
    made = {}
    for name, server in topology.servers.items():
        made[name] = server.open_socket()
        made[name].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made[name].bind(("", SINK))
    yield made
    for sink in made.values():
        sink.close()


def arrived(sink, last):
    """Number of received datagrams before the last datagram."""
    count = 0
    while sink.recv(100) != last:
        count += 1
    return count


def test_flood_above_a_routers_rate_is_its_own_loss(topology, gateway, sinks):
    flooding, quiet = topology.customers[FLOODING], topology.customers[QUIET]
    mac = flooding.mac_of("10.0.0.1")
    for customer, server in [(flooding, FLOODING), (quiet, QUIET)]:
        assert "1 received" in customer.run("ping", "-n", "-c", "1", "-W", "5", topology.servers[server].address)
    before = router(gateway, FLOODING)["received"]

    def received():
        return router(gateway, FLOODING)["received"] - before

    began = time.monotonic()
    limited = rate_limited(gateway, FLOODING)
    ping = quiet.spawn("ping", "-n", "-i", "0.02", topology.servers[QUIET].address)
    frame = Ether(dst=mac, src=flooding.mac()) / IP(src="10.0.0.2", dst="198.51.100.1") / UDP(sport=SINK, dport=SINK)
    frame = bytes(frame / Raw(b"flood"))
    with Wire(flooding) as wire, quiet.open_socket() as slow:
        for sent in range(PART, FLOOD + 1, PART):
            wire.send(*[frame] * PART)
            slow.sendto(b"slow", (topology.servers[QUIET].address, SINK))
            # Wait for the gateway, so that the queue of the device does not overflow.
            waiting.until(lambda sent=sent: received() >= sent, f"{sent} packets to have come", 30)
        slow.sendto(b"last", (topology.servers[QUIET].address, SINK))
    took = time.monotonic() - began
    # The other router loses no packets.
    assert FLOOD // PART == arrived(sinks[QUIET], b"last")
    none_lost(ping)
    assert not {"rate-limited", "over-share"} & set(router(gateway, QUIET)["drops"])
    # The flooding router loses only packets above its rate.
    refused = rate_limited(gateway, FLOODING) - limited
    assert FLOOD - RATE * (took + 1) - 1 <= refused < FLOOD
    sinks[FLOODING].settimeout(0.2)
    got = 0
    while got <= FLOOD:
        try:
            got += sinks[FLOODING].recv(100) == b"flood"
        except TimeoutError:
            break
    # Other packets of the router's host are counted, too.
    others = received() - FLOOD
    assert 0 <= refused + got - FLOOD <= others


def test_flood_of_one_vlan_leaves_anothers_echoes_alone(topology, gateway):
    """The bound is loose, because no counter includes packets that the queue of a device drops."""
    customer = topology.customers[QUIET]
    mac = customer.mac_of("10.0.0.1")
    with Wire(customer) as wire:

        def tagged(name, packet):
            return bytes(Ether(src=wire.mac, dst=mac) / Dot1Q(vlan=VLANS[name]) / packet)

        before = router(gateway, "green")["received"]
        flood = tagged("green", IP(src=TAGGED, dst="10.0.0.1") / UDP(sport=9, dport=9) / Raw(b"flood"))
        answered = 0
        for number in range(ECHOES):
            wire.send(*[flood] * 200)
            echo = IP(src=TAGGED, dst="10.0.0.1") / ICMP(id=VLANS["yellow"], seq=number) / b"x"

            def is_answer(frame, number=number):
                return ICMP in frame and (frame[ICMP].type, frame[ICMP].id, frame[ICMP].seq) == (0, VLANS["yellow"], number)

            # A lost request is repeated, as ping does.
            for _ in range(3):
                wire.send(tagged("yellow", echo))
                try:
                    wire.expect(is_answer, 1)
                    answered += 1
                    break
                except waiting.Timeout:
                    continue
    assert ECHOES == answered
    green, yellow = (router(gateway, name) for name in VLANS)
    assert green["received"] > before
    assert [WEIGHTS["green"], WEIGHTS["yellow"]] == [green["weight"], yellow["weight"]]
    assert 0 < yellow["share"] < 1 and 0 < green["share"] < 1
    assert "over-share" not in yellow["drops"]
    table = gateway.command("show", "routers")
    assert re.search(r"^green\b.*\b10\b", table, re.MULTILINE) and re.search(r"^yellow\b.*\b30\b", table, re.MULTILINE)
