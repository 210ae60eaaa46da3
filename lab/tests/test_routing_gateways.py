"""Tests gateways outside the networks of the link, and IPv4 routes with IPv6 gateways, from the file and from the
kernel."""

import re

import pytest

from lab import configuration, waiting
from lab.gateway import Sluice
from lab.host import Host
from lab.pings import answered

pytestmark = pytest.mark.sluice

OWN = "203.0.113.5"
GATEWAY = "198.51.100.1"


@pytest.fixture(scope="module")
def topology(topology):
    """The provider assigns a single address. The provider's router is in another network, and reaches the address
    through the link."""
    topology.upstream.run("ip", "route", "add", OWN, "dev", "eth0")
    topology.upstream.run("ip", "route", "replace", "203.0.113.0/24", "via", OWN)
    return topology


@pytest.fixture(scope="module")
def link_local(topology):
    return re.search(r"inet6 (fe80::\S+)/64", topology.upstream.run("ip", "-6", "address", "show", "dev", "eth0")).group(1)


@pytest.fixture(scope="module")
def document():
    document = configuration.changed(
        configuration.standard(), interfaces={"outside": {"addresses": [f"{OWN}/32", "2001:db8:a::2/64"]}},
        routers={"default": {"daemon": True}},
    )
    return document | {"routes": [
        {"to": f"{GATEWAY}/32", "interface": "outside"}, {"to": "0.0.0.0/0", "via": GATEWAY},
    ]}


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


def reaches(topology):
    """Whether a new session of alice reaches the server and its answer returns."""
    return answered(topology.alice.run(
        "ping", "-n", "-c3", "-i0.2", "-W5", topology.server.address, check=False
    ), 3)


def via(gateway, address):
    rows = gateway.show("routes", address)["routes"]
    return [(row.get("via"), row.get("interface")) for row in rows]


def test_gateway_that_a_route_leads_to_by_the_link_forwards(topology, gateway):
    assert reaches(topology)
    assert [(GATEWAY, "outside")] == via(gateway, topology.server.address)


def test_gateway_that_is_said_to_be_on_the_link_forwards(topology, gateway, document):
    route = {"to": "0.0.0.0/0", "via": GATEWAY, "interface": "outside", "onlink": True}
    gateway.apply(document | {"routes": [route]})
    assert reaches(topology)


def test_recursive_gateway_that_a_route_leads_to_by_the_link_forwards(topology, gateway, document):
    routes = [{"to": "198.51.100.0/28", "interface": "outside"}, {"to": "0.0.0.0/0", "via": GATEWAY, "recursive": True}]
    gateway.apply(document | {"routes": routes})
    assert reaches(topology)


def test_ipv4_goes_by_a_gateway_of_ipv6(topology, gateway, document, link_local):
    route = {"to": "0.0.0.0/0", "via": link_local, "interface": "outside"}
    gateway.apply(document | {"routes": [route]})
    assert reaches(topology)
    assert [(link_local, "outside")] == via(gateway, topology.server.address)


def test_routes_of_the_kernel_by_such_gateways_forward(topology, gateway, document, link_local):
    gateway.apply(document | {"routes": []})
    router = Host("sluice-default", topology.folder, make=False)
    for words in (["via", GATEWAY, "dev", "outside", "onlink"], ["via", "inet6", link_local, "dev", "outside"]):
        router.run("ip", "route", "add", "0.0.0.0/0", *words)
        expected = GATEWAY if GATEWAY in words else link_local
        waiting.until(
            lambda expected=expected: via(gateway, topology.server.address) == [(expected, "outside")], f"a route via {expected}"
        )
        assert reaches(topology)
        router.run("ip", "route", "delete", "0.0.0.0/0")
        waiting.until(lambda: not via(gateway, topology.server.address), "no route")
