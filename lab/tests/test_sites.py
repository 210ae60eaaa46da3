"""Tests subscriber sites in a complete carrier network: an access switch, private DHCP servers with the same
addresses in two groups, the operator's DHCP server, and terminals with DHCP clients."""

import os
import re

import pytest

from lab import waiting
from lab.connection import exchange
from lab.services import Services
from lab.sites import SERVER, Lab, Sites, call
from lab.wire import IP, TCP, UDP, Dot1Q, Ether, Raw, Wire
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.utils import rdpcap

pytestmark = pytest.mark.sluice


@pytest.fixture(scope="module")
def topology():
    made = Sites()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    return Services(topology.operator, 1)


@pytest.fixture(scope="module")
def lab(topology, services, binary):
    made = Lab(topology, binary)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def connections(lab):
    """A connection of each terminal to the server. All connections are used again after the tests."""
    made = {name: call(host, lab.topology.operator, 7700 + k) for k, (name, host) in enumerate(lab.topology.terminals.items())}
    for ends in made.values():
        exchange(*ends)
    yield made
    for ends in made.values():
        exchange(*ends)
        for end in ends:
            end.close()


def test_every_terminal_has_a_lease_and_fetches(lab, services):
    seen = {}
    for site in lab.topology.sites:
        for terminal in site.terminals:
            assert services.digest == lab.digest(terminal.name, "/download.bin")
            seen.setdefault(site.name, set()).add(lab.seen_as(terminal.name))
    assert {site.name: {lab.sites()[site.name]["public"]} for site in lab.topology.sites} == seen
    assert 3 == len(set.union(*seen.values()))
    assert all(re.fullmatch(r"198\.51\.100\.1\d\d", address) for addresses in seen.values() for address in addresses)


def test_operator_sees_three_addresses_with_a_virtual_mac_each_and_no_tags(lab):
    path = os.path.join(lab.topology.folder, "operator.pcap")
    capture = lab.topology.operator.spawn("tcpdump", "-i", "eth0", "-n", "-U", "-Z", "root", "-w", path)
    capture.wait_for_line("listening on")
    for terminal in lab.topology.terminals:
        lab.seen_as(terminal)
    asked = lambda: [frame for frame in rdpcap(path) if TCP in frame and frame[TCP].dport == 80 and frame[TCP].flags == "S"]
    waiting.until(lambda: len(asked()) >= 6, "six connections")
    capture.stop()
    frames = rdpcap(path)
    assert not any(Dot1Q in frame for frame in frames)
    sites = lab.sites().values()
    assert {(site["mac"], site["public"]) for site in sites} == {(frame.src, frame[IP].src) for frame in asked()}
    # The MAC addresses are locally administered unicast addresses.
    assert all(int(site["mac"][:2], 16) & 3 == 2 for site in sites)
    told = lab.topology.operator.run("ip", "neighbour", "show", "dev", "eth0")
    assert all(f"{site['public']} lladdr {site['mac']}" in told for site in sites), told


def test_two_terminals_of_a_site_use_one_port_at_once(lab):
    alice, anna = (lab.topology.terminals[name] for name in ["alice", "anna"])
    operator = lab.topology.operator
    with operator.listener(7777) as listener:
        both = [call(host, operator, 7777, local=40_000, listener=listener) for host in [alice, anna]]
        (one, port), (other, another) = (theirs.getpeername() for _, theirs in both)
        assert one == other == lab.sites()[lab.topology.site_of("alice").name]["public"]
        assert port != another and 40_000 in (port, another)
        for ends in both * 2:
            exchange(*ends)
        for end in sum(both, ()):
            end.close()


def test_two_sites_with_one_private_address_are_two_hosts_outside(lab):
    address = {name: client.address for name, client in lab.clients.items()}
    pairs = [(one, other) for one in ["alice", "anna", "bob", "bella"] for other in ["carol", "chris"]
             if address[one] == address[other]]
    assert pairs, address
    operator = lab.topology.operator
    with operator.listener(7778) as listener:
        hosts = [lab.topology.terminals[name] for name in pairs[0]]
        both = [call(host, operator, 7778, local=40_001, listener=listener) for host in hosts]
        peers = [theirs.getpeername() for _, theirs in both]
        # No other terminal of the site uses the port.
        assert [(lab.sites()[lab.topology.site_of(name).name]["public"], 40_001) for name in pairs[0]] == peers
        for ends in both * 2:
            exchange(*ends)
        for end in sum(both, ()):
            end.close()


def test_sites_and_leases_are_shown_with_all_that_is_known(lab):
    for site in lab.topology.sites:
        shown = lab.sites()[site.name]
        assert (site.group, "access", 2) == (shown["group"], shown["interface"], shown["terminals"])
        assert site.tags == shown["tags"]
        assert "bound" == shown["state"]
        assert "198.51.100.1" == shown["server"]
        assert 0 < shown["renews"] <= shown["expires"] <= 60
        for terminal in site.terminals:
            lease = lab.lease_of(terminal.name)
            assert (site.name, lab.clients[terminal.name].address) == (lease["site"], lease["address"])
            assert (terminal.name, "active") == (lease["host-name"], lease["state"])
            assert 0 < lease["expires"] <= 24
    assert 2 == len(lab.leases("--site", lab.topology.sites[0].name))
    assert 4 == len(lab.leases("--group", "homes"))
    table = lab.gateway.command("show", "sites")
    assert all(site.name in table for site in lab.topology.sites)


def test_released_lease_ends_its_terminal_alone(lab, connections):
    ours, theirs = connections.pop("anna")
    public = lab.sites()[lab.topology.site_of("anna").name]["public"]
    anna, address = lab.topology.terminals["anna"], lab.clients["anna"].address
    lab.clients["anna"].release()
    waiting.until(lambda: lab.lease_of("anna") is None, "the lease to be gone")
    waiting.until(lambda: 1 == lab.sites()[lab.topology.site_of("anna").name]["terminals"], "one terminal to be left")
    # The terminal continues to use its released address.
    anna.run("ip", "address", "add", f"{address}/16", "dev", "eth0")
    anna.run("ip", "route", "replace", "default", "via", "10.0.0.1")
    before = lab.gateway.drops().get("terminal-unknown", 0)
    ours.sendall(b"more")
    lab.gateway.wait_for_drop("terminal-unknown", before)
    anna.run("ip", "address", "flush", "dev", "eth0")
    for end in [ours, theirs]:
        end.close()
    lab.clients["anna"].kill()
    lab.clients["anna"].start().wait_bound()
    assert public == lab.seen_as("anna") == lab.seen_as("alice")


def test_lease_that_runs_out_ends_its_terminal_alone(lab, connections):
    ours, theirs = connections.pop("bella")
    lab.clients["bella"].kill()
    assert lab.lease_of("bella")
    waiting.until(lambda: lab.lease_of("bella") is None, "the lease to run out", 40)
    before = lab.gateway.drops().get("terminal-unknown", 0)
    ours.sendall(b"more")
    lab.gateway.wait_for_drop("terminal-unknown", before)
    for end in [ours, theirs]:
        end.close()
    lab.topology.terminals["bella"].run("ip", "address", "flush", "dev", "eth0")
    lab.clients["bella"].start().wait_bound()
    assert lab.seen_as("bob") == lab.seen_as("bella")


def test_site_without_terminals_gives_its_address_back_and_gets_one_again(lab):
    site = lab.topology.site_of("carol")
    for name in ["carol", "chris"]:
        lab.clients[name].release()
        lab.clients[name].kill()
    waiting.until(lambda: not lab.sites()[site.name].get("public"), "the site to have no address", 20)
    assert (0, "idle") == (lab.sites()[site.name]["terminals"], lab.sites()[site.name]["state"])
    for name in ["carol", "chris"]:
        lab.clients[name].start()
    for name in ["carol", "chris"]:
        lab.clients[name].wait_bound()
    lab.wait_public(site)
    assert lab.sites()[site.name]["public"] == lab.seen_as("carol") == lab.seen_as("chris")


def test_private_server_that_is_killed_and_comes_back_is_noticed_by_no_session(lab, connections):
    lab.homes.kill()
    for ends in connections.values():
        exchange(*ends)
    assert 6 == len(lab.leases())
    lab.homes.start()
    for name in ["alice", "anna", "bob", "bella"]:
        lab.clients[name].wait_renewed()
    assert 6 == len(lab.leases())


def test_operators_server_that_is_killed_and_comes_back_is_noticed_by_no_session(lab, connections):
    before = {name: site["public"] for name, site in lab.sites().items()}
    # Count ended leases, because a lease that ends and is immediately granted again interrupts sessions.
    ended = lambda: lab.gateway.process.output.count(" no longer has ")
    gone = ended()
    lab.operator.kill()
    # A lease of 60 s is renewed from the sixth second on, and rebound from the twelfth. Until then no server answers.
    waiting.until(lambda: all(site["expires"] < 46 for site in lab.sites().values()), "renewals to fail", 30)
    for ends in connections.values():
        exchange(*ends)
    lab.operator.start()
    waiting.until(lambda: all(site["expires"] > 50 for site in lab.sites().values()), "all sites to be renewed", 60)
    assert before == {name: site["public"] for name, site in lab.sites().items()}
    assert gone == ended()


def test_terminal_that_floods_disturbs_nobody_else(lab, connections):
    chris = lab.topology.terminals["chris"]
    before = lab.gateway.drops().get("site-policed-dhcp", 0)
    with Wire(chris) as wire:
        mac = bytes.fromhex(wire.mac.replace(":", ""))
        flood = [
            bytes(Ether(src=wire.mac, dst="ff:ff:ff:ff:ff:ff") / IP(src="0.0.0.0", dst="255.255.255.255")
                  / UDP(sport=68, dport=67) / BOOTP(chaddr=mac, xid=k) / DHCP(options=[("message-type", "discover"), "end"]))
            for k in range(3000)
        ]
        wire.send(*flood[:2000])
        lab.clients["alice"].kill()
        lab.topology.terminals["alice"].run("ip", "address", "flush", "dev", "eth0")
        lab.clients["alice"].start()
        wire.send(*flood[2000:])
        assert lab.clients["alice"].wait_bound()
    lab.gateway.wait_for_drop("site-policed-dhcp", before)
    assert lab.seen_as("alice") == lab.seen_as("anna")
    assert lab.seen_as("carol") == lab.sites()[lab.topology.site_of("carol").name]["public"]


def test_stranger_in_a_site_is_dropped_by_name(lab):
    before = lab.gateway.drops().get("terminal-unknown", 0)
    with Wire(lab.topology.terminals["alice"]) as wire:
        gateway = lab.topology.terminals["alice"].mac_of("10.0.0.1")
        frame = Ether(src="02:00:00:00:00:99", dst=gateway) / IP(src="10.0.1.222", dst=SERVER) / UDP(dport=9) / Raw(b"who am I")
        wire.send(frame)
    lab.gateway.wait_for_drop("terminal-unknown", before)


def test_gateway_that_starts_again_has_all_leases_at_once(lab):
    before = {name: (site["public"], site["mac"]) for name, site in lab.sites().items()}
    lab.operator.kill()
    lab.gateway.stop()
    lab.gateway.start()
    # No server can be reached, so the daemon uses its stored leases.
    lab.wait_public(*lab.topology.sites)
    assert before == {name: (site["public"], site["mac"]) for name, site in lab.sites().items()}
    for name in lab.topology.terminals:
        assert before[lab.topology.site_of(name).name][0] == lab.seen_as(name)
    lab.operator.start()
    waiting.until(lambda: all(site["state"] == "bound" for site in lab.sites().values()), "all leases to be confirmed", 60)
