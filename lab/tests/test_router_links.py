"""Tests that routes follow the link state. Without any daemon, traffic over a cut link takes another path, and
returns when the link is up again."""

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.pings import unanswered
from lab.topology import TwoWays

pytestmark = pytest.mark.sluice

# Destinations of three routes: a multipath route, a route with a backup, and a route that resolves through another
# route.
SPREAD, BACKED, FOLLOWING = "192.0.2.1", "192.0.2.130", "203.0.113.1"


@pytest.fixture(scope="module")
def topology():
    made = TwoWays()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def document():
    addresses = {
        "inside1": "192.168.1.1/24", "inside2": "192.168.2.1/24", "east": "198.51.100.2/30", "west": "198.51.100.6/30",
    }
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {name: {"device": name, "addresses": [address]} for name, address in addresses.items()},
        "routes": [
            {"to": "192.0.2.0/25", "via": "198.51.100.1"},
            {"to": "192.0.2.0/25", "via": "198.51.100.5"},
            {"to": "192.0.2.128/25", "via": "198.51.100.1"},
            {"to": "192.0.2.128/25", "via": "198.51.100.5", "distance": 200},
            {"to": "203.0.113.0/24", "via": "192.0.2.130", "recursive": True},
        ],
    }


@pytest.fixture(autouse=True)
def whole(topology, gateway):
    yield
    for link in ["east", "west"]:
        topology.restore(link)
    waiting.until(lambda: ways(gateway, "192.0.2.0/25") == ["east", "west"], "both links")


def ways(gateway, destination):
    """The output interfaces of packets to a network."""
    rows = gateway.show("routes")["routes"]
    return sorted(row["interface"] for row in rows if row["to"] == destination and row["used"])


def unused(gateway, destination):
    """The unused next hops of a route, each with the reason."""
    rows = gateway.show("routes", "--all")["routes"]
    return sorted((row["via"], row["unused"]) for row in rows if row["to"] == destination and not row["used"])


def reaches(host, address):
    return " 1 received" in host.run("ping", "-n", "-c1", "-W1", address, check=False)


def test_flows_go_on_by_the_other_way_when_a_link_is_cut_and_come_back(topology, gateway):
    for address in [SPREAD, BACKED, FOLLOWING]:
        waiting.until(lambda address=address: reaches(topology.alice, address), address)
    assert (["east"], ["east"]) == (ways(gateway, "192.0.2.128/25"), ways(gateway, "203.0.113.0/24"))
    assert [("198.51.100.5", "not-preferred")] == unused(gateway, "192.0.2.128/25")
    topology.cut("east")
    for address in [SPREAD, BACKED, FOLLOWING]:
        waiting.until(lambda address=address: reaches(topology.alice, address), f"{address} by the other way")
    # Each attempt is a separate flow, and some of these flows would have used the cut link.
    for _ in range(8):
        assert reaches(topology.alice, SPREAD)
    assert ["west"] == ways(gateway, "192.0.2.0/25")
    assert (["west"], ["west"]) == (ways(gateway, "192.0.2.128/25"), ways(gateway, "203.0.113.0/24"))
    assert [("198.51.100.1", "link-down")] == unused(gateway, "192.0.2.0/25")
    topology.restore("east")
    waiting.until(lambda: ways(gateway, "192.0.2.128/25") == ["east"], "the route that was there before")
    waiting.until(lambda: reaches(topology.alice, BACKED), BACKED)


def test_network_behind_links_that_are_down_is_unreachable_and_own_addresses_answer(topology, gateway):
    topology.cut("east")
    topology.cut("west")
    waiting.until(lambda: not ways(gateway, "192.0.2.0/25"), "no way")
    for address in [SPREAD, FOLLOWING, "198.51.100.1"]:
        assert "Net Unreachable" in topology.alice.run("ping", "-n", "-c1", "-W2", address, check=False), address
    assert [("192.0.2.130", "gateway-unreachable")] == unused(gateway, "203.0.113.0/24")
    for own in ["198.51.100.2", "198.51.100.6"]:
        assert reaches(topology.alice, own)


def test_link_that_flaps_costs_nobody_else_a_packet(topology, gateway):
    waiting.until(lambda: reaches(topology.alice, topology.bob.address), "bob")
    ping = topology.alice.spawn("ping", "-n", "-i0.01", "-c300", "-w20", topology.bob.address)
    for _ in range(6):
        topology.cut("east")
        waiting.until(lambda: ways(gateway, "192.0.2.0/25") == ["west"], "one way")
        topology.restore("east")
        waiting.until(lambda: ways(gateway, "192.0.2.0/25") == ["east", "west"], "both ways")
    ping.wait()
    assert [] == unanswered(ping.output, 300)


def test_way_that_is_added_and_removed_by_apply_leaves_the_others_as_they_are(topology, gateway, document):
    waiting.until(lambda: reaches(topology.alice, SPREAD), SPREAD)
    one = {**document, "routes": [route for route in document["routes"] if route["via"] != "198.51.100.1"]}
    gateway.apply(one)
    assert ["west"] == ways(gateway, "192.0.2.0/25")
    waiting.until(lambda: reaches(topology.alice, SPREAD), SPREAD)
    gateway.apply(document)
    assert ["east", "west"] == ways(gateway, "192.0.2.0/25")
