"""Tests Sluice as an access switch. Sites are connected to untagged ports, and the trunk carries two tags for each
site. At the other end of the trunk, another switch removes the tags and connects the servers."""

import os

import pytest

from lab import waiting
from lab.dhcp import Client, Kea, Subnet
from lab.gateway import Sluice
from lab.pings import answered
from lab.sites import Sites, switch_configuration
from lab.wire import IP, UDP, Dot1Q, Ether, Raw, Wire
from scapy.utils import rdpcap

pytestmark = pytest.mark.sluice


@pytest.fixture(scope="module")
def topology():
    made = Sites()
    for number, terminal in enumerate(made.terminals.values(), 2):
        terminal.address = f"10.0.0.{number}"
        terminal.run("ip", "address", "add", f"{terminal.address}/24", "dev", "eth0")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def switch(topology, binary):
    made = Sluice(topology.switch, binary, switch_configuration())
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def far(topology, binary):
    """The switch at the other end of the trunk, which connects home1 to the operator, and home2 to the DHCP servers."""
    interfaces = {name: {"device": name} for name in ["access", "outside", "core"]}
    interfaces["one"] = {"parent": "access", "vlan": "100.1"}
    interfaces["two"] = {"parent": "access", "vlan": "100.2"}
    document = {
        "system": {"name": "far", "workers": 2},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/far", "log": "debug"},
        "interfaces": interfaces,
        "bridges": {"one": {"interfaces": ["one", "outside"]}, "two": {"interfaces": ["core", "two"], "invalid": "drop"}},
    }
    topology.operator.run("ip", "address", "add", "10.0.0.80/24", "dev", "eth0")
    topology.homes_dhcp.run("ip", "address", "add", "10.0.0.67/24", "dev", "eth0")
    made = Sluice(topology.gateway, binary, document)
    made.start()
    yield made
    made.stop()


def _sides(gateway, bridge):
    return {side["interface"]: side for side in _of(gateway)[bridge]["sides"]}


def _of(gateway):
    return {bridge["name"]: bridge for bridge in gateway.show("bridges")["bridges"]}


def _links(switch):
    return {name: _sides(switch, name)[f"port{number}"]["link"] for number, (name, *_) in enumerate(Sites.PLAN, 1)}


def test_frames_on_the_trunk_have_both_tags_and_what_is_behind_them_stays(topology, switch):
    # This test runs before a gateway receives frames at the other end.
    path = os.path.join(topology.folder, "trunk.pcap")
    alice = topology.terminals["alice"]
    with Wire(alice) as wire:
        capture = topology.gateway.spawn("tcpdump", "-i", "access", "-n", "-U", "-Z", "root", "-w", path)
        capture.wait_for_line("listening on")
        plain = Ether(src=wire.mac, dst="02:00:00:00:00:77")
        datagram = IP(src="10.0.0.2", dst="10.0.0.99") / UDP(sport=1, dport=7) / Raw(b"to be found")
        own = plain / Dot1Q(vlan=9) / datagram
        for frame in [plain / datagram, own]:
            wire.send(frame)

        def seen():
            return [frame for frame in rdpcap(path) if b"to be found" in bytes(frame)]

        waiting.until(lambda: len(seen()) >= 2, "both frames on the trunk")
        capture.stop()
    heads = [bytes(frame)[12:26].hex(" ", 2) for frame in seen()]
    assert ["88a8 0064 8100 0001 0800", "88a8 0064 8100 0001 8100 0009 0800"] == [heads[0][:24], heads[1]]


@pytest.mark.parametrize("terminal, far_end, reached", [("alice", "10.0.0.80", True), ("bob", "10.0.0.67", True),
                                                         ("alice", "10.0.0.67", False), ("carol", "10.0.0.80", False)])
def test_site_reaches_what_is_behind_its_own_tags_alone(topology, switch, far, terminal, far_end, reached):
    # The packets have the full MTU of a link, to which the tags are added.
    output = topology.terminals[terminal].run(
        "ping", "-n", "-c", "3", "-i", "0.1", "-w", "5", "-t", "1", "-M", "do", "-s", "1472", far_end, check=False
    )
    assert answered(output, 3) == reached, output


def test_terminals_of_a_site_reach_each_other_and_those_of_another_do_not(topology, switch, far):
    alice, anna, bob = (topology.terminals[name] for name in ["alice", "anna", "bob"])
    assert "1 received" in alice.run("ping", "-n", "-c", "1", "-W", "2", anna.address)
    assert "0 received" in alice.run("ping", "-n", "-c", "1", "-W", "1", bob.address, check=False)


def test_terminal_gets_a_lease_from_kea_behind_both_switches(topology, switch, far):
    subnet = Subnet("10.0.0.0/24", "10.0.0.200", "10.0.0.220", "10.0.0.67", 600)
    server = Kea(topology.homes_dhcp, subnet).start()
    client = Client(topology.terminals["bella"]).start()
    assert "10.0.0.200" == client.wait_bound()
    client.kill()
    server.kill()


def test_frames_of_unknown_tags_are_dropped_by_name(topology, switch, far):
    before = switch.drops().get("unknown-vlan", 0)
    with Wire(topology.gateway, "access") as wire:
        ether = Ether(src="02:00:00:00:00:76", dst="ff:ff:ff:ff:ff:ff", type=0x88A8)
        wire.send(ether / Dot1Q(vlan=100) / Dot1Q(vlan=3) / IP(dst="10.0.0.2") / UDP())
    switch.wait_for_drop("unknown-vlan", before)


def test_port_follows_the_trunk_and_the_trunk_follows_no_port(topology, switch, far):
    site, alice = topology.sites[0].host, topology.terminals["alice"]

    def carrier(host, interface):
        return "LOWER_UP" in host.run("ip", "link", "show", "dev", interface)

    site.run("ip", "link", "set", "uplink", "down")
    waiting.until(lambda: _links(switch)["home1"] == "down", "the port to be down")
    assert "1 received" in topology.terminals["bob"].run("ping", "-n", "-c", "1", "-W", "2", "10.0.0.67")
    site.run("ip", "link", "set", "uplink", "up")
    waiting.until(lambda: _links(switch)["home1"] == "up", "the port to be up again")
    topology.gateway.run("ip", "link", "set", "access", "down")
    waiting.until(lambda: set(_links(switch).values()) == {"held"}, "all ports to be held down")
    waiting.until(lambda: not carrier(site, "uplink"), "the site to lose its carrier")
    topology.gateway.run("ip", "link", "set", "access", "up")
    waiting.until(lambda: carrier(site, "uplink"), "the site to have its carrier again")
    waiting.until(lambda: set(_links(switch).values()) == {"up"}, "all ports to be up")
    waiting.until(
        lambda: "1 received" in alice.run("ping", "-n", "-c", "1", "-W", "1", "10.0.0.80", check=False),
        "packets to cross again", 20,
    )
