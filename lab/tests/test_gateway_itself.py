"""Tests the gateway as a host. It answers, announces its addresses, and stays reachable for its operator during a
flood."""

import pytest

from lab import configuration, waiting
from lab.pings import answered
from lab.wire import ICMP, IP, Ether, ICMPv6ND_RA, ICMPv6ND_RS, ICMPv6NDOptPrefixInfo, IPv6, Raw, Wire

pytestmark = pytest.mark.usefixtures("gateway")


@pytest.fixture(scope="module")
def document():
    return configuration.changed(
        configuration.standard(),
        gateway={"policing": {"echo": {"rate": 50, "burst": 20}}},
        interfaces={"inside1": {"router-advertisements": {"interval": "4s"}}},
    )


@pytest.mark.parametrize("address", ["192.168.1.1", "2001:db8:1::1", "198.51.100.2", "2001:db8:a::2"])
def test_gateway_answers_echo_on_each_of_its_addresses(topology, address):
    output = topology.alice.run("ping", "-n", "-c", "3", "-i", "0.1", "-w", "5", address)
    assert answered(output, 3)


@pytest.mark.parametrize("address", ["198.51.100.2", "2001:db8:a::2"])
def test_gateway_answers_echo_from_outside(topology, address):
    output = topology.server.run("ping", "-n", "-c", "3", "-i", "0.1", "-w", "5", address)
    assert answered(output, 3)


@pytest.mark.sluice
def test_port_of_the_gateway_where_nothing_listens_is_closed(topology, gateway):
    before = gateway.drops().get("no-local-service", 0)
    with topology.alice.open_socket() as asking:
        asking.sendto(b"anyone?", (topology.alice.gateway, 9))
    gateway.wait_for_drop("no-local-service", before)


@pytest.mark.sluice
def test_flood_of_echo_is_policed_and_arp_still_answered(topology, gateway):
    alice = topology.alice
    mac = alice.mac_of(alice.gateway)
    before = gateway.drops().get("policed-echo", 0)
    with Wire(alice) as wire:
        flood = bytes(Ether(src=wire.mac, dst=mac) / IP(src=alice.address, dst=alice.gateway) / ICMP() / Raw(b"flood"))
        wire.send(*[flood] * 500)
    gateway.wait_for_drop("policed-echo", before + 400)
    topology.bob.run("ip", "neighbour", "flush", "dev", "eth0")
    assert "1 received" in topology.bob.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)


@pytest.mark.sluice
def test_router_solicitation_is_answered_with_prefix_and_lifetime(topology):
    alice = topology.alice
    with Wire(alice) as wire:
        wire.send(Ether(src=wire.mac, dst="33:33:00:00:00:02") / IPv6(src="fe80::77", dst="ff02::2", hlim=255) / ICMPv6ND_RS())
        frame = wire.expect(lambda frame: ICMPv6ND_RA in frame)
    assert 255 == frame[IPv6].hlim
    assert frame[IPv6].src.startswith("fe80::")
    assert 1800 == frame[ICMPv6ND_RA].routerlifetime
    prefix = frame[ICMPv6NDOptPrefixInfo]
    assert ("2001:db8:1::", 64, 1, 1) == (prefix.prefix, prefix.prefixlen, prefix.L, prefix.A)


@pytest.mark.sluice
def test_host_that_listens_to_advertisements_gets_an_address_and_a_way_out(topology):
    alice = topology.alice
    alice.run("ip", "-6", "route", "delete", "default")
    alice.setting("net.ipv6.conf.eth0.accept_ra=2")
    try:
        waiting.until(lambda: "proto ra" in alice.run("ip", "-6", "route", "show", "default"), "a default route", 15)
        waiting.until(
            lambda: "mngtmpaddr" in alice.run("ip", "-6", "address", "show", "dev", "eth0", "dynamic"),
            "an address by advertisement",
        )
        assert "1 received" in alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address6)
    finally:
        alice.setting("net.ipv6.conf.eth0.accept_ra=0")
        alice.run("ip", "-6", "route", "flush", "default")
        alice.run("ip", "-6", "route", "add", "default", "via", alice.gateway6)


@pytest.mark.sluice
def test_interface_without_advertisements_sends_none(topology):
    bob = topology.bob
    with Wire(bob) as wire:
        solicitation = IPv6(src="fe80::78", dst="ff02::2", hlim=255) / ICMPv6ND_RS()
        wire.send(Ether(src=wire.mac, dst="33:33:00:00:00:02") / solicitation)
        marker = bob.spawn("ping", "-n", "-c", "1", "-W", "5", bob.gateway)
        before = wire.until(lambda frame: ICMP in frame and frame[ICMP].type == 0)
        marker.wait()
    assert [] == [frame.summary() for frame in before if ICMPv6ND_RA in frame]
