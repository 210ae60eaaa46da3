"""Tests packets that must not be forwarded. Each packet is dropped with a named reason, without other effects."""

import socket

import pytest

from lab.wire import ICMP, IP, TCP, UDP, Ether, IPv6, Raw, Wire

pytestmark = pytest.mark.usefixtures("gateway")

SERVER = "198.51.100.130"
ALICE = "192.168.1.2"
SERVER6 = "2001:db8:b::130"
ALICE6 = "2001:db8:1::2"

BAD = {
    "bad-version": bytes([0x55]) + bytes(IP(src=ALICE, dst=SERVER) / UDP(dport=7200))[1:],
    "bad-header-length": bytes([0x43]) + bytes(IP(src=ALICE, dst=SERVER) / UDP(dport=7200))[1:],
    "bad-total-length": IP(src=ALICE, dst=SERVER, len=400) / UDP(dport=7200),
    "bad-header-checksum": IP(src=ALICE, dst=SERVER, chksum=0x1234) / UDP(dport=7200),
    "bad-transport-checksum": IP(src=ALICE, dst=SERVER) / UDP(dport=7200, chksum=0x1234) / Raw(b"wrong"),
    "bad-udp-length": IP(src=ALICE, dst=SERVER) / UDP(dport=7200, len=4000, chksum=0),
    "bad-tcp-offset": IP(src=ALICE, dst=SERVER) / TCP(dport=7200, dataofs=2),
    "short-transport": IP(src=ALICE, dst=SERVER, proto=6) / Raw(b"short"),
    "martian-source": IP(src="127.0.0.1", dst=SERVER) / UDP(dport=7200),
    "martian-destination": IP(src=ALICE, dst="127.0.0.1") / UDP(dport=7200),
    "land": IP(src=SERVER, dst=SERVER) / UDP(dport=7200),
    "tiny-fragment": IP(src=ALICE, dst=SERVER, flags="MF", proto=6) / Raw(b"12345678"),
    "header-overlap": IP(src=ALICE, dst=SERVER, frag=1, proto=6) / Raw(b"12345678"),
    "fragment-too-long": IP(src=ALICE, dst=SERVER, frag=8189, proto=17) / Raw(bytes(100)),
    "bad-fragment-length": IP(src=ALICE, dst=SERVER, flags="MF", proto=17) / Raw(bytes(33)),
    "syn-fin": IP(src=ALICE, dst=SERVER) / TCP(dport=7200, flags="SF"),
    "syn-reset": IP(src=ALICE, dst=SERVER) / TCP(dport=7200, flags="SR"),
    "no-flags": IP(src=ALICE, dst=SERVER) / TCP(dport=7200, flags=0),
}


def _check_nothing_arrives(topology, frame_of):
    """Send the frame, then a valid frame, and check that only the valid frame arrives."""
    mac = topology.alice.mac_of(topology.alice.gateway)
    with Wire(topology.alice) as alice, Wire(topology.server) as server:
        marker = IP(src=ALICE, dst=SERVER) / UDP(sport=7201, dport=7201) / Raw(b"marker")
        alice.send(frame_of(alice.mac, mac), Ether(src=alice.mac, dst=mac) / marker)
        before = server.until(lambda frame: Raw in frame and bytes(frame[Raw]).startswith(b"marker"))
        packets = [frame.summary() for frame in before if IP in frame or UDP in frame]
        assert [] == packets


@pytest.mark.sluice
@pytest.mark.parametrize("name", BAD)
def test_bad_packet_is_dropped_and_counted_under_its_name(topology, gateway, name):
    before = gateway.drops().get(name, 0)
    kind = 0x86DD if isinstance(BAD[name], IPv6) else 0x0800
    _check_nothing_arrives(topology, lambda source, mac: Ether(src=source, dst=mac, type=kind) / Raw(bytes(BAD[name])))
    assert before + 1 == gateway.drops().get(name, 0)


@pytest.mark.parametrize("name", ["bad-version", "bad-header-length", "bad-header-checksum", "martian-source"])
def test_bad_packet_reaches_nobody(topology, name):
    _check_nothing_arrives(topology, lambda source, mac: Ether(src=source, dst=mac, type=0x0800) / Raw(bytes(BAD[name])))


@pytest.mark.sluice
def test_source_that_is_not_on_the_link_is_refused_where_validation_is_strict(topology, gateway):
    """Alice sends packets with bob's source address (BCP 38)."""
    original = gateway.document
    changed = {**original, "interfaces": {**original["interfaces"]}}
    changed["interfaces"]["inside1"] = {**original["interfaces"]["inside1"], "source-validation": "strict"}
    gateway.apply(changed)
    try:
        before = sum(gateway.drops().values())
        spoofed = IP(src=topology.bob.address, dst=SERVER) / ICMP()
        _check_nothing_arrives(topology, lambda source, mac: Ether(src=source, dst=mac) / spoofed)
        assert before < sum(gateway.drops().values())
    finally:
        gateway.apply(original)


def test_udp_without_checksum_stays_without(topology):
    """A checksum of 0 means that the sender has computed no checksum (RFC 768). Translation adds no checksum."""
    mac = topology.alice.mac_of(topology.alice.gateway)
    with topology.server.open_socket() as listening, Wire(topology.server) as server, Wire(topology.alice) as alice:
        listening.bind(("", 7202))
        datagram = IP(src=ALICE, dst=SERVER) / UDP(sport=7203, dport=7202, chksum=0) / Raw(b"plain")
        alice.send(Ether(src=alice.mac, dst=mac) / datagram)
        assert b"plain" == listening.recv(100)
        arrived = server.expect(lambda frame: UDP in frame and frame[UDP].dport == 7202)
        assert 0 == arrived[UDP].chksum


def test_udp_over_ipv6_without_checksum_is_forwarded_without(topology):
    """Middleboxes forward such datagrams, because tunnels use them (RFC 6936, 5)."""
    mac = topology.alice.mac_of(topology.alice.gateway)
    with Wire(topology.server) as server, Wire(topology.alice) as alice:
        datagram = IPv6(src=ALICE6, dst=SERVER6) / UDP(sport=7203, dport=7202, chksum=0) / Raw(b"plain")
        alice.send(Ether(src=alice.mac, dst=mac) / datagram)
        arrived = server.expect(lambda frame: UDP in frame and frame[UDP].dport == 7202)
        assert (0, b"plain") == (arrived[UDP].chksum, bytes(arrived[Raw]))


def test_options_and_traffic_class_survive_translation(topology):
    mac = topology.alice.mac_of(topology.alice.gateway)
    with topology.server.open_socket() as listening, Wire(topology.server) as server, Wire(topology.alice) as alice:
        listening.bind(("", 7204))
        datagram = IP(src=ALICE, dst=SERVER, tos=0xB8, id=4242) / UDP(sport=7205, dport=7204) / Raw(b"marked")
        alice.send(Ether(src=alice.mac, dst=mac) / datagram)
        assert b"marked" == listening.recv(100)
        arrived = server.expect(lambda frame: UDP in frame and frame[UDP].dport == 7204)
        assert (0xB8, 62) == (arrived[IP].tos, arrived[IP].ttl)
        assert socket.inet_aton(arrived[IP].src) != socket.inet_aton(ALICE)
