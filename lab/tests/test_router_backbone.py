"""Tests three virtual routers, each with its own routing daemon, and their neighbours. Traffic is not affected when
a link is cut, a daemon dies, or a neighbour fails."""

import re

import pytest

from lab import backbone
from lab.backbone import seen_as, wait_for, ways
from lab.gateway import Sluice
from lab.pings import answered
from lab.services import Services
from lab.topology import Backbone

pytestmark = pytest.mark.sluice


@pytest.fixture(scope="module")
def topology():
    made = Backbone()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    return Services(topology.server)


@pytest.fixture(scope="module")
def document():
    return backbone.configuration()


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def daemons(topology, gateway):
    """The routing daemons of the routers, of the site behind red, and of the outside networks."""
    return backbone.daemons(topology)


@pytest.fixture(scope="module")
def converged(gateway, daemons):
    """Wait until every router has the routes that its daemons have learned."""
    backbone.converge(gateway)


@pytest.fixture
def flows(topology, services, converged):
    """The flows of both customers."""
    made = backbone.flows_of(topology)
    yield made
    for flow in made.values():
        flow.stop()


def test_every_router_knows_what_its_daemons_have_learned(converged):
    """The fixture contains the checks."""


def test_each_customer_reaches_the_server_by_the_pool_of_its_own_router(topology, services, converged):
    assert re.fullmatch(r"203\.0\.113\.(1[6-9]|2\d|3[01])", seen_as(topology.red, topology.server, "10.0.1.1"))
    assert re.fullmatch(r"203\.0\.113\.(3[2-9]|4[0-7])", seen_as(topology.blue, topology.server, "10.0.0.2"))


def test_ipv6_goes_by_the_routes_of_ripng_and_ospf(topology, converged):
    assert answered(topology.red.run(
        "ping", "-n", "-c", "3", "-i", "0.2", "-w", "5", "-I", "2001:db8:11::1", topology.server.address6
    ), 3)


def test_link_that_is_cut_leaves_the_way_by_the_other_and_comes_back(topology, gateway, flows):
    backbone.cut(topology)
    wait_for(gateway, "core", "0.0.0.0/0", ("south-out", "bgp"))
    for name, source in backbone.SOURCES.items():
        assert seen_as(getattr(topology, name), topology.server, source).startswith("203.0.113.")
    backbone.mend(topology)
    wait_for(gateway, "core", "0.0.0.0/0", ("north-out", "bgp"))
    for flow in flows.values():
        # Only packets are lost that were sent before the link failure was detected and announced by BGP.
        assert flow.end() < 20 * 20


def test_daemon_that_is_killed_and_comes_back_loses_nobody_a_packet(topology, gateway, daemons, flows):
    backbone.kill(gateway, daemons["core"])
    assert [("north-out", "bgp")] == ways(gateway, "core", "0.0.0.0/0")
    backbone.start_again(gateway, daemons["core"])
    for flow in flows.values():
        assert 0 == flow.end()


def test_router_that_goes_and_comes_back_leaves_the_other_alone(topology, gateway, document, daemons, flows):
    daemons["red"].kill()
    gateway.apply(backbone.without_red(document))
    output = topology.red.run(
        "curl", "-sS", "-m", "3", "--interface", "10.0.1.1", f"http://{topology.server.address}/whoami", check=False
    )
    assert "203.0.113." not in output
    gateway.apply(document)
    assert 0 == flows["blue"].end()
    daemons["red"].start()
    backbone.converge(gateway)
    assert re.fullmatch(r"203\.0\.113\.(1[6-9]|2\d|3[01])", seen_as(topology.red, topology.server, "10.0.1.1"))
