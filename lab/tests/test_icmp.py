"""Tests the translation of ICMP errors, and the errors that the gateway generates."""

import socket
import threading

import pytest

from lab.topology import POOL
from lab.wire import ICMP, IP, UDP, Ether, ICMPv6TimeExceeded, IPv6, Raw, Wire, checksums_hold

pytestmark = pytest.mark.usefixtures("gateway")


def test_port_unreachable_reaches_the_program_that_sent_the_datagram(topology):
    with topology.alice.open_socket() as asking:
        asking.connect((topology.server.address, 9))
        asking.send(b"nobody there")
        with pytest.raises(ConnectionRefusedError):
            asking.recv(100)


def test_port_unreachable_quotes_the_packet_as_the_host_sent_it(topology):
    with Wire(topology.alice) as wire, topology.alice.open_socket() as asking:
        asking.sendto(b"nobody there", (topology.server.address, 9))
        source = asking.getsockname()[1]
        error = wire.expect(lambda frame: ICMP in frame and frame[ICMP].type == 3)
    outer, quoted = error[IP], error[ICMP].payload
    assert (topology.server.address, topology.alice.address) == (outer.src, outer.dst)
    assert (topology.alice.address, topology.server.address) == (quoted.src, quoted.dst)
    assert (source, 9) == (quoted.payload.sport, quoted.payload.dport)
    assert checksums_hold(outer)


def test_quoted_headers_have_the_checksums_that_the_host_computed(topology):
    """The packet quoted by the error equals the sent packet, except for the TTL and the header checksum."""
    with Wire(topology.server) as wire, Wire(topology.alice) as inside, topology.alice.open_socket() as asking:
        asking.sendto(b"checksum", (topology.server.address, 9))
        arrived = wire.expect(lambda frame: UDP in frame and frame[UDP].dport == 9)
        error = inside.expect(lambda frame: ICMP in frame and frame[ICMP].type == 3)
    assert arrived[IP].src in POOL
    assert checksums_hold(arrived[IP])
    quoted = IP(bytes(error[ICMP].payload))
    quoted_whole = quoted.copy()
    del quoted_whole[IP].chksum
    del quoted_whole[UDP].chksum
    again = IP(bytes(quoted_whole))
    assert again[UDP].chksum == quoted[UDP].chksum
    assert again[IP].chksum == quoted[IP].chksum


def test_error_that_quotes_no_session_reaches_nobody(topology):
    """An error is dropped if its quoted packet matches no session (RFC 5508, REQ-4)."""
    with Wire(topology.alice) as inside, topology.alice.open_socket() as asking, Wire(topology.upstream) as upstream:
        with topology.server.open_socket() as answering:
            answering.bind((topology.server.address, 7003))
            asking.sendto(b"open", (topology.server.address, 7003))
            _, (address, port) = answering.recvfrom(100)
            mac = topology.upstream.mac_of("198.51.100.2")
            for quoted_port in [port ^ 1, port]:
                quoted = IP(src=address, dst=topology.server.address) / UDP(sport=quoted_port, dport=7003)
                upstream.send(
                    Ether(src=upstream.mac, dst=mac)
                    / IP(src="198.51.100.77", dst=address) / ICMP(type=3, code=1) / quoted
                )
            error = inside.expect(lambda frame: ICMP in frame)
    assert ("198.51.100.77", 7003) == (error[IP].src, error[ICMP].payload.payload.dport)


@pytest.fixture
def narrow(topology):
    """The link between upstream and server has an MTU of 1,300 bytes."""
    for host, interface in [(topology.upstream, "eth1"), (topology.server, "eth0")]:
        host.run("ip", "link", "set", interface, "mtu", "1300")
    yield
    for host, interface in [(topology.upstream, "eth1"), (topology.server, "eth0")]:
        host.run("ip", "link", "set", interface, "mtu", "1500")
    for host in (topology.alice, topology.server):
        host.run("ip", "route", "flush", "cache")
        host.run("ip", "-6", "route", "flush", "cache")


def test_fragmentation_needed_behind_translation_teaches_the_host_the_path_mtu(topology, narrow):
    output = topology.alice.run(
        "ping", "-n", "-c", "1", "-W", "5", "-M", "do", "-s", "1400", topology.server.address, check=False
    )
    assert "Frag needed" in output and "mtu = 1300" in output
    assert "mtu 1300" in topology.alice.run("ip", "route", "get", topology.server.address)


def test_upload_over_a_narrow_path_arrives_whole(topology, narrow):
    content = b"0123456789abcdef" * 65536
    received = []
    listener = topology.server.listener(7004)

    def take():
        connection, _ = listener.accept()
        with connection:
            received.append(b"".join(iter(lambda: connection.recv(65536), b"")))

    taker = threading.Thread(target=take)
    taker.start()
    # The server announces an MSS for its own link, so that the sender sends full packets.
    with topology.alice.open_socket(kind=socket.SOCK_STREAM, timeout=30) as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1460)
        sender.connect((topology.server.address, 7004))
        sender.sendall(content)
    taker.join(30)
    listener.close()
    assert [content] == received


def test_packet_too_big_over_ipv6_teaches_the_host_the_path_mtu(topology, narrow):
    output = topology.alice.run(
        "ping", "-n", "-c", "1", "-W", "5", "-M", "do", "-s", "1400", topology.server.address6, check=False
    )
    assert "Packet too big: mtu=1300" in output


def test_time_exceeded_comes_from_the_gateway_with_its_inside_address(topology):
    output = topology.alice.run("ping", "-n", "-c", "1", "-W", "5", "-t", "1", topology.server.address, check=False)
    assert f"From {topology.alice.gateway} icmp_seq=1 Time to live exceeded" in output


def test_time_exceeded_behind_the_gateway_comes_back_translated(topology):
    with Wire(topology.alice) as wire, topology.alice.open_socket() as asking:
        asking.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 2)
        asking.sendto(b"two hops", (topology.server.address, 33434))
        source = asking.getsockname()[1]
        error = wire.expect(lambda frame: ICMP in frame and frame[ICMP].type == 11)
    quoted = error[ICMP].payload
    assert (topology.upstream.address, topology.alice.address) == (error[IP].src, error[IP].dst)
    assert (topology.alice.address, source) == (quoted.src, quoted.payload.sport)
    assert checksums_hold(error[IP])


def test_hop_limit_exceeded_comes_from_the_gateway(topology):
    with Wire(topology.alice) as wire, topology.alice.open_socket(socket.AF_INET6) as asking:
        asking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 1)
        asking.sendto(b"one hop", (topology.server.address6, 33434))
        error = wire.expect(lambda frame: ICMPv6TimeExceeded in frame)
    assert topology.alice.gateway6 == error[IPv6].src
    assert checksums_hold(error[IPv6])


def test_echo_identifier_is_translated_so_that_two_hosts_may_use_the_same(topology):
    identifier = 0x4242
    seen = {}
    with Wire(topology.server) as server:
        for host in (topology.alice, topology.bob):
            mac = host.mac_of(host.gateway)
            with Wire(host) as wire:
                request = IP(src=host.address, dst=topology.server.address) / ICMP(id=identifier, seq=1) / Raw(host.name)
                wire.send(Ether(src=wire.mac, dst=mac) / request)
                reply = wire.expect(lambda frame: ICMP in frame and frame[ICMP].type == 0)
                assert (identifier, host.name.encode()) == (reply[ICMP].id, bytes(reply[Raw]))
                arrived = server.expect(lambda frame: ICMP in frame and bytes(frame[ICMP].payload) == host.name.encode())
                seen[host.name] = (arrived[IP].src, arrived[ICMP].id)
    assert seen["alice"] != seen["bob"]


def test_unknown_network_of_the_inside_is_answered_as_unreachable(topology):
    """The destination is on a connected network, and no host answers the requests for its address."""
    output = topology.alice.run("ping", "-n", "-c", "1", "-W", "8", "192.168.2.99", check=False)
    assert f"From {topology.alice.gateway} icmp_seq=1 Destination Host Unreachable" in output
