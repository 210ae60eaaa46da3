"""Tests ARP and neighbour discovery: answers, requests, queueing, and ageing."""

import pytest

from lab import configuration, waiting
from lab.pings import unanswered
from lab.topology import POOL
from lab.wire import ARP, Ether, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6, Wire

pytestmark = pytest.mark.usefixtures("gateway")

BROADCAST = "ff:ff:ff:ff:ff:ff"


@pytest.fixture(scope="module")
def document():
    """A configuration in which neighbours age within the time of a test, and bob's pool is in the network of the
    outside link."""
    standard = configuration.standard()
    return configuration.changed(
        standard,
        neighbours={"reachable": "2s", "retransmit": "200ms"},
        nat={
            "pools": {"link": {"addresses": ["198.51.100.16-198.51.100.19"]}},
            "source": [*standard["nat"]["source"], {"from": "192.168.2.0/24", "out": "outside", "pool": "link"}],
        },
    )


def test_arp_request_for_the_gateway_is_answered(topology):
    alice = topology.alice
    with Wire(alice) as wire:
        wire.send(Ether(src=wire.mac, dst=BROADCAST) / ARP(hwsrc=wire.mac, psrc=alice.address, pdst=alice.gateway))
        reply = wire.expect(lambda frame: ARP in frame and frame[ARP].op == 2)
    assert (alice.gateway, alice.address) == (reply[ARP].psrc, reply[ARP].pdst)
    assert (reply.src, wire.mac) == (reply[ARP].hwsrc, reply[ARP].hwdst)


def test_arp_request_for_somebody_else_is_not_answered(topology):
    alice = topology.alice
    with Wire(alice) as wire:
        for wanted in ["192.168.1.3", topology.bob.address, alice.gateway]:
            wire.send(Ether(src=wire.mac, dst=BROADCAST) / ARP(hwsrc=wire.mac, psrc=alice.address, pdst=wanted))
        first = wire.expect(lambda frame: ARP in frame and frame[ARP].op == 2)
    assert alice.gateway == first[ARP].psrc


def test_neighbour_solicitation_for_the_gateway_is_answered(topology):
    alice = topology.alice
    with Wire(alice) as wire:
        wire.send(
            Ether(src=wire.mac, dst="33:33:ff:00:00:01")
            / IPv6(src=alice.address6, dst="ff02::1:ff00:1", hlim=255)
            / ICMPv6ND_NS(tgt=alice.gateway6) / ICMPv6NDOptSrcLLAddr(lladdr=wire.mac)
        )
        reply = wire.expect(lambda frame: ICMPv6ND_NA in frame and frame[ICMPv6ND_NA].tgt == alice.gateway6)
    assert (1, 1, 255) == (reply[ICMPv6ND_NA].R, reply[ICMPv6ND_NA].S, reply[IPv6].hlim)


@pytest.mark.parametrize("version", ["-4", "-6"])
def test_first_packets_to_an_unknown_neighbour_wait_and_arrive(topology, version):
    """Bob is an unknown neighbour. The gateway requests his address, and loses no packet in the meantime."""
    address = topology.bob.address if version == "-4" else topology.bob.address6
    output = topology.alice.run("ping", version, "-n", "-c", "1", "-W", "5", address)
    assert "1 received" in output


@pytest.mark.sluice
def test_neighbours_are_listed_with_their_hardware_address(topology, gateway):
    topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.bob.address)
    rows = {row["address"]: row for row in gateway.show("neighbours")["neighbours"]}
    assert topology.bob.mac() == rows[topology.bob.address]["mac"]
    assert "inside2" == rows[topology.bob.address]["interface"]


@pytest.mark.sluice
def test_cleared_neighbour_is_asked_for_again(topology, gateway):
    topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.bob.address)
    with Wire(topology.bob) as wire:
        gateway.command("clear", "neighbours", "--address", topology.bob.address)
        topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.bob.address)
        wire.expect(lambda frame: ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == topology.bob.address)


@pytest.mark.sluice
def test_neighbour_in_use_is_asked_again_before_it_ages_out(topology, gateway):
    """An answer of a neighbour in use is valid for at most 1.5 times 2 s. Then the neighbour is probed (RFC 4861,
    section 7.3.3)."""
    with Wire(topology.bob) as wire:
        gateway.command("clear", "neighbours", "--address", topology.bob.address)
        ping = topology.alice.spawn("ping", "-n", "-i", "0.2", "-c", "40", "-w", "25", topology.bob.address)
        for _ in range(2):
            wire.expect(lambda frame: ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == topology.bob.address, 15)
        assert 0 == ping.wait(30)
    assert [] == unanswered(ping.output, 40)


@pytest.mark.sluice
def test_neighbour_that_went_silent_is_given_up(topology, gateway):
    topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.bob.address)
    topology.bob.run("ip", "link", "set", "eth0", "arp", "off")
    try:
        waiting.until(
            lambda: "Unreachable" in topology.alice.run(
                "ping", "-n", "-c", "1", "-W", "2", topology.bob.address, check=False
            ),
            "the gateway to give bob up", 20,
        )
    finally:
        topology.bob.run("ip", "link", "set", "eth0", "arp", "on")
    waiting.until(
        lambda: "1 received" in topology.alice.run("ping", "-n", "-c", "1", "-W", "1", topology.bob.address, check=False),
        "the gateway to find bob again",
    )


@pytest.mark.sluice
def test_arp_request_for_a_pool_address_on_the_link_is_answered(topology):
    """If a pool is in the network of the outside link, no router has a route to it, and the gateway answers ARP
    requests for its addresses."""
    with Wire(topology.upstream) as wire:
        wire.send(
            Ether(src=wire.mac, dst=BROADCAST)
            / ARP(hwsrc=wire.mac, psrc=topology.upstream.address, pdst="198.51.100.17")
        )
        reply = wire.expect(lambda frame: ARP in frame and frame[ARP].op == 2)
    assert "198.51.100.17" == reply[ARP].psrc
    output = topology.bob.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)
    assert "1 received" in output


def test_pool_behind_a_route_is_not_answered_for_on_the_link(topology):
    with Wire(topology.upstream) as wire:
        for wanted in [POOL[0], "198.51.100.2"]:
            wire.send(
                Ether(src=wire.mac, dst=BROADCAST)
                / ARP(hwsrc=wire.mac, psrc=topology.upstream.address, pdst=wanted)
            )
        first = wire.expect(lambda frame: ARP in frame and frame[ARP].op == 2)
    assert "198.51.100.2" == first[ARP].psrc
