"""Tests the translation of fragments, in order and out of order."""

import socket

import pytest

from lab.pings import unanswered
from lab.topology import POOL
from lab.wire import ICMP, IP, UDP, Ether, Raw, Wire, fragment

pytestmark = pytest.mark.usefixtures("gateway")

CONTENT = bytes(range(251)) * 20


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
def test_datagram_larger_than_the_link_arrives_whole_both_ways(topology, family):
    with topology.server.open_socket(family) as answering, topology.alice.open_socket(family) as asking:
        answering.bind(("", 7100))
        address = topology.server.address if family == socket.AF_INET else topology.server.address6
        asking.sendto(CONTENT, (address, 7100))
        data, peer = answering.recvfrom(10000)
        assert CONTENT == data
        answering.sendto(data, peer[:2])
        assert CONTENT == asking.recv(10000)


@pytest.mark.parametrize("version", ["-4", "-6"])
def test_ping_larger_than_the_link_is_answered(topology, version):
    address = topology.server.address if version == "-4" else topology.server.address6
    output = topology.bob.run("ping", version, "-n", "-c", "3", "-i", "0.2", "-w", "5", "-s", "4000", address)
    assert [] == unanswered(output, 3)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]], ids=["forward", "backward", "mixed"])
def test_fragments_in_any_order_become_the_datagram(topology, order):
    mac = topology.alice.mac_of(topology.alice.gateway)
    with topology.server.open_socket() as answering, Wire(topology.alice) as wire:
        answering.bind(("", 7101))
        datagram = IP(src=topology.alice.address, dst=topology.server.address, id=7101 + order[0]) / UDP(
            sport=7102, dport=7101
        )
        pieces = fragment(datagram / Raw(CONTENT), fragsize=1400)
        assert 4 == len(pieces)
        wire.send(*[Ether(src=wire.mac, dst=mac) / pieces[index] for index in order])
        data, peer = answering.recvfrom(10000)
        assert CONTENT == data
        assert peer[0] in POOL


def test_fragments_of_two_hosts_with_the_same_identification_stay_apart(topology):
    macs = [host.mac_of(host.gateway) for host in (topology.alice, topology.bob)]
    with topology.server.open_socket() as answering, Wire(topology.alice) as alice, Wire(topology.bob) as bob:
        answering.bind(("", 7103))
        halves = []
        for host, wire, mac in [(topology.alice, alice, macs[0]), (topology.bob, bob, macs[1])]:
            datagram = IP(src=host.address, dst=topology.server.address, id=4711) / UDP(sport=7104, dport=7103)
            pieces = fragment(datagram / Raw(host.name.encode() * 400), fragsize=1400)
            halves.append((wire, [Ether(src=wire.mac, dst=mac) / piece for piece in pieces]))
        for turn in range(max(len(frames) for _, frames in halves)):
            for wire, frames in halves:
                wire.send(*frames[turn : turn + 1])
        received = {answering.recv(10000) for _ in range(2)}
        assert {b"alice" * 400, b"bob" * 400} == received


def test_error_about_a_fragmented_datagram_reaches_the_host(topology):
    with Wire(topology.alice) as wire, topology.alice.open_socket() as asking:
        asking.connect((topology.server.address, 9))
        asking.send(CONTENT)
        error = wire.expect(lambda frame: ICMP in frame and frame[ICMP].type == 3)
        assert topology.alice.address == error[ICMP].payload.src
        with pytest.raises(ConnectionRefusedError):
            asking.recv(100)
