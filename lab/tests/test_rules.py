"""Tests rules without pools (one-to-one mappings, exemptions, protocols without ports), and forwarded ports as seen
by inside hosts."""

import socket
import threading

import pytest

from lab import configuration
from lab.topology import FORWARDED, POOL

pytestmark = pytest.mark.sluice

BOB_OUTSIDE = "203.0.113.40"
EXEMPT = "198.51.100.131"
GRE = 47


@pytest.fixture(scope="module")
def document(topology):
    made = configuration.standard()
    made["nat"]["pools"]["carrier"]["protocols"] = ["gre"]
    made["nat"]["static"] = [
        {"inside": f"{topology.bob.address}/32", "outside": f"{BOB_OUTSIDE}/32", "out": "outside"},
    ]
    made["nat"]["exempt"] = [{"to": f"{EXEMPT}/32", "protocol": "udp"}]
    return made


@pytest.fixture(scope="module", autouse=True)
def reachable(topology, gateway):
    topology.server.run("ip", "address", "add", f"{EXEMPT}/25", "dev", "eth0")
    for network in ("192.168.0.0/16", f"{BOB_OUTSIDE}/32"):
        topology.upstream.run("ip", "route", "replace", network, "via", "198.51.100.2")


def _peer(server, client, port, to):
    """The client's address as seen by a TCP server, and the server address as seen by the client, after a client
    connects to an address."""
    listener = server.listener(port)
    with client.open_socket(kind=socket.SOCK_STREAM) as connection:
        connection.connect(to)
        accepted, peer = listener.accept()
        with accepted:
            accepted.sendall(b"hello")
            assert b"hello" == connection.recv(100)
        local = connection.getsockname()
    listener.close()
    return peer, local


def test_one_to_one_host_is_reached_by_its_outside_address(topology):
    peer, local = _peer(topology.bob, topology.server, 7001, (BOB_OUTSIDE, 7001))
    assert local == peer
    assert "1 received" in topology.server.run("ping", "-c", "1", "-W", "2", BOB_OUTSIDE)


def test_one_to_one_host_keeps_its_port_outside(topology):
    peer, local = _peer(topology.server, topology.bob, 7002, (topology.server.address, 7002))
    assert (BOB_OUTSIDE, local[1]) == peer


def test_inside_hosts_reach_outside_addresses_as_their_own_outside_address(topology):
    peer, local = _peer(topology.bob, topology.alice, 7003, (BOB_OUTSIDE, 7003))
    assert peer[0] in POOL
    assert local[0] == topology.alice.address
    peer, _ = _peer(topology.alice, topology.bob, 80, (FORWARDED, 8080))
    assert BOB_OUTSIDE == peer[0]


def test_destination_that_is_exempt_sees_inside_addresses(topology):
    with topology.server.open_socket() as listening, topology.alice.open_socket() as asking:
        listening.bind((EXEMPT, 7004))
        asking.sendto(b"question", (EXEMPT, 7004))
        _, peer = listening.recvfrom(100)
        assert (topology.alice.address, asking.getsockname()[1]) == peer
        listening.sendto(b"answer", peer)
        assert (b"answer", (EXEMPT, 7004)) == asking.recvfrom(100)
    # TCP connections to this address are translated.
    peer, _ = _peer(topology.server, topology.alice, 7005, (EXEMPT, 7005))
    assert peer[0] in POOL


def test_protocol_without_ports_is_translated_by_address_both_ways(topology, gateway):
    with topology.server.open_socket(kind=socket.SOCK_RAW, protocol=GRE) as far, topology.alice.open_socket(
        kind=socket.SOCK_RAW, protocol=GRE
    ) as near:
        near.sendto(b"\0\0\x08\0question", (topology.server.address, 0))
        packet, peer = far.recvfrom(200)
        assert packet.endswith(b"question") and peer[0] in POOL
        far.sendto(b"\0\0\x08\0answer", peer)
        packet, peer = near.recvfrom(200)
        assert packet.endswith(b"answer") and peer[0] == topology.server.address


def test_rules_say_how_many_flows_they_decided(gateway):
    rules = {(rule["kind"], rule["network"], rule["action"]): rule["flows"] for rule in gateway.show("nat")["rules"]}
    for rule in [
        ("source", "192.168.0.0/16", "pool"),
        ("source", "192.168.2.2/32", "static"),
        ("destination", f"{BOB_OUTSIDE}/32", "static"),
        ("destination", f"{EXEMPT}/32", "exempt"),
    ]:
        assert rules[rule] > 0, rules
    assert "exempt" in gateway.command("show", "nat")
