"""Tests which connections outside hosts may open."""

import socket
import threading

import pytest

from lab.topology import FORWARDED, POOL
from lab.wire import ARP, IP, TCP, UDP, Ether, Raw, Wire

pytestmark = pytest.mark.usefixtures("gateway")


def test_forwarded_tcp_port_leads_to_the_inside_host(topology):
    listener = topology.alice.listener(80)
    peers = []

    def serve():
        connection, peer = listener.accept()
        with connection:
            peers.append(peer[0])
            connection.sendall(b"from inside: " + connection.recv(100))

    server = threading.Thread(target=serve)
    server.start()
    with topology.server.open_socket(kind=socket.SOCK_STREAM) as client:
        client.connect((FORWARDED, 8080))
        client.sendall(b"hello")
        assert b"from inside: hello" == client.recv(100)
    server.join(5)
    listener.close()
    assert [topology.server.address] == peers


def test_forwarded_udp_port_leads_to_the_inside_host_and_back(topology):
    with topology.alice.open_socket() as listening, topology.server.open_socket() as asking:
        listening.bind(("", 5353))
        asking.sendto(b"question", (FORWARDED, 5353))
        data, peer = listening.recvfrom(100)
        assert (b"question", topology.server.address) == (data, peer[0])
        listening.sendto(b"answer", peer)
        assert (b"answer", (FORWARDED, 5353)) == asking.recvfrom(100)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_unsolicited_packet_to_the_pool_reaches_nobody(topology, protocol):
    mac = topology.upstream.mac_of("198.51.100.2")
    header = TCP(sport=4000, dport=4000, flags="S") if protocol == "tcp" else UDP(sport=4000, dport=4000)
    with Wire(topology.alice) as alice, Wire(topology.bob) as bob, Wire(topology.upstream) as upstream:
        with topology.alice.open_socket() as listening:
            listening.bind(("", 5353))
            for address in POOL:
                upstream.send(
                    Ether(src=upstream.mac, dst=mac) / IP(src=topology.server.address, dst=address) / header.copy()
                )
            # A later packet that is allowed shows that the earlier packets were processed.
            marker = IP(src=topology.server.address, dst=FORWARDED) / UDP(sport=4001, dport=5353) / Raw(b"marker")
            upstream.send(Ether(src=upstream.mac, dst=mac) / marker)
            before = alice.until(lambda frame: Raw in frame and bytes(frame[Raw]).startswith(b"marker"))
            assert [] == [frame.summary() for frame in before if IP in frame]
            bob.send(Ether(src=bob.mac, dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=topology.bob.address, pdst=topology.bob.gateway))
            before = bob.until(lambda frame: ARP in frame and frame[ARP].op == 2)
            assert [] == [frame.summary() for frame in before if IP in frame]


def test_session_is_open_only_to_the_peer_it_was_made_for(topology):
    """Tests address-and-port-dependent filtering (RFC 4787, section 5)."""
    with (
        topology.alice.open_socket() as inside,
        topology.server.open_socket() as peer,
        topology.server.open_socket() as stranger,
    ):
        peer.bind((topology.server.address, 7002))
        inside.sendto(b"open", (topology.server.address, 7002))
        _, outside = peer.recvfrom(100)
        stranger.sendto(b"stranger", outside)
        peer.sendto(b"peer", outside)
        assert (b"peer", (topology.server.address, 7002)) == inside.recvfrom(100)


@pytest.mark.sluice
def test_unsolicited_packet_is_counted_under_its_reason(topology, gateway):
    before = gateway.drops().get("unsolicited", 0)
    with topology.server.open_socket() as stranger:
        for address in POOL:
            stranger.sendto(b"anyone?", (address, 4000))
    gateway.wait_for_drop("unsolicited", before + len(POOL) - 1)
    assert before + len(POOL) == gateway.drops()["unsolicited"]
