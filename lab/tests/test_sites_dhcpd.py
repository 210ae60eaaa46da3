"""Tests subscriber sites with ISC dhcpd for the private addresses of one group, and Kea for the addresses of the
other group."""

import pytest

from lab import waiting
from lab.connection import exchange
from lab.services import Services
from lab.sites import Lab, Sites, call

pytestmark = pytest.mark.sluice


@pytest.fixture(scope="module")
def topology():
    made = Sites("/run/lab/sites-dhcpd")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def lab(topology, binary):
    Services(topology.operator, 1)
    made = Lab(topology, binary, homes="dhcpd")
    made.start()
    yield made
    made.stop()


def test_terminals_of_both_servers_are_seen_by_their_sites_addresses(lab):
    for site in lab.topology.sites:
        public = lab.sites()[site.name]["public"]
        assert [public] * 2 == [lab.seen_as(terminal.name) for terminal in site.terminals]
    assert {"homes": "dhcpd", "others": "kea"} == {
        site.group: getattr(lab, site.group).kind for site in lab.topology.sites
    }
    assert {lab.homes.leases} == {lease["source"] for lease in lab.leases("--group", "homes").values()}


def test_lease_of_dhcpd_that_is_released_or_runs_out_ends_its_terminal_alone(lab):
    operator = lab.topology.operator
    kept = call(lab.topology.terminals["bob"], operator, 7700)
    lab.clients["anna"].release()
    lab.clients["bella"].kill()
    waiting.until(lambda: lab.lease_of("anna") is None, "the lease to be gone")
    waiting.until(lambda: lab.lease_of("bella") is None, "the lease to run out", 40)
    exchange(*kept)
    for end in kept:
        end.close()
    for name in ["anna", "bella"]:
        lab.clients[name].kill()
        lab.topology.terminals[name].run("ip", "address", "flush", "dev", "eth0")
        lab.clients[name].start().wait_bound()
        assert lab.sites()[lab.topology.site_of(name).name]["public"] == lab.seen_as(name)


def test_dhcpd_that_is_killed_and_comes_back_is_noticed_by_no_session(lab):
    kept = call(lab.topology.terminals["alice"], lab.topology.operator, 7701)
    lab.homes.kill()
    exchange(*kept)
    lab.homes.start()
    lab.clients["alice"].wait_renewed()
    exchange(*kept)
    for end in kept:
        end.close()


def test_terminal_that_moves_to_another_site_is_of_that(lab):
    """The server leases the same address to the terminal. The address then belongs to the other site."""
    anna, homes = lab.topology.terminals["anna"], [site.host for site in lab.topology.sites[:2]]
    other = lab.topology.sites[1]
    lab.clients["anna"].kill()
    anna.run("ip", "address", "flush", "dev", "eth0")
    # Move the terminal's link to the other site.
    homes[0].run("ip", "link", "set", "anna", "netns", homes[1].name)
    homes[1].run("ip", "link", "set", "anna", "up", "master", "br0")
    lab.clients["anna"].start().wait_bound()
    waiting.until(lambda: lab.lease_of("anna").get("site") == other.name, "the lease to be the other site's")
    assert lab.sites()[other.name]["public"] == lab.seen_as("anna") == lab.seen_as("bob")
