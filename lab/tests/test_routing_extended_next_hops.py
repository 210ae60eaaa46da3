"""Tests IPv4 with IPv6 next hops that two bgpd negotiate by BGP (RFC 8950). The routes of the gateway's bgpd are
sent by FPM."""

import re

import pytest

from lab import configuration, waiting
from lab.gateway import Sluice
from lab.host import Host
from lab.pings import answered
from lab.routing import Frr
from lab.topology import POOL

pytestmark = pytest.mark.sluice

GLOBAL = "2001:db8:a::1"
SERVERS = "198.51.100.128/25"

UPSTREAM_BGP = """\
router bgp 65001
 bgp router-id 198.51.100.129
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 2001:db8:a::2 remote-as 65000
 neighbor 2001:db8:a::2 timers 1 3
 neighbor 2001:db8:a::2 timers connect 1
 neighbor 2001:db8:a::2 capability extended-nexthop
 address-family ipv4 unicast
  network 198.51.100.128/25
 exit-address-family
"""

OWN_BGP = """\
router bgp 65000
 bgp router-id 203.0.113.16
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 2001:db8:a::1 remote-as 65001
 neighbor 2001:db8:a::1 timers 1 3
 neighbor 2001:db8:a::1 timers connect 1
 neighbor 2001:db8:a::1 capability extended-nexthop
 address-family ipv4 unicast
  network 203.0.113.16/28
  neighbor 2001:db8:a::1 route-map GLOBAL in
 exit-address-family
route-map GLOBAL permit 10
 set ipv6 next-hop prefer-global
"""


@pytest.fixture(scope="module")
def topology(topology):
    """The topology without IPv4 addresses on the link between the gateway and the upstream router."""
    upstream = topology.upstream
    upstream.run("ip", "address", "delete", "198.51.100.1/25", "dev", "eth0")
    upstream.run("ip", "route", "flush", "203.0.113.0/24")
    return topology


@pytest.fixture(scope="module")
def document():
    document = configuration.changed(
        configuration.standard(), interfaces={"outside": {"addresses": ["2001:db8:a::2/64"]}},
        routers={"default": {"daemon": True, "fpm": {"listen": "127.0.0.1:2620", "grace": "2s"}}},
    )
    return document | {"routes": [{"to": "::/0", "via": GLOBAL}]}


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def upstream_link_local(topology):
    return re.search(r"inet6 (fe80::\S+)/64", topology.upstream.run("ip", "-6", "address", "show", "dev", "eth0")).group(1)


@pytest.fixture(scope="module")
def upstream(topology):
    made = Frr(topology.upstream, bgpd=UPSTREAM_BGP)
    made.start()
    return made


@pytest.fixture(scope="module")
def own(topology, gateway, upstream):
    made = Frr(Host("sluice-default", topology.folder, make=False), "127.0.0.1", bgpd=OWN_BGP)
    made.start()
    return made


def via(gateway, destination=SERVERS):
    rows = gateway.show("routes")["routes"]
    return [(row.get("via"), row.get("interface"), row["kind"]) for row in rows if row["to"] == destination]


def wait_for(gateway, *expected, timeout=60):
    def leads():
        found = via(gateway)
        if found != list(expected):
            raise LookupError(f"{found}")
        return True

    waiting.until(leads, f"{SERVERS} by {expected}", timeout)


def wait_for_return(topology):
    """Wait until the upstream router has a route to the pool."""
    waiting.until(lambda: topology.upstream.run("ip", "route", "show", "203.0.113.16/28").strip(), "the way back", 60)


def reaches(topology):
    """Whether a new session of alice reaches the server and its answer returns."""
    return answered(topology.alice.run(
        "ping", "-n", "-c3", "-i0.2", "-W5", topology.server.address, check=False
    ), 3)


def test_prefix_by_a_global_next_hop_of_ipv6_forwards_and_is_withdrawn(topology, gateway, upstream, own):
    wait_for(gateway, (GLOBAL, "outside", "bgp"))
    wait_for_return(topology)
    assert reaches(topology)
    upstream.ask("bgpd", "configure terminal", "router bgp 65001", "address-family ipv4 unicast", f"no network {SERVERS}")
    wait_for(gateway)
    assert not reaches(topology)
    upstream.ask("bgpd", "configure terminal", "router bgp 65001", "address-family ipv4 unicast", f"network {SERVERS}")
    wait_for(gateway, (GLOBAL, "outside", "bgp"))
    assert reaches(topology)


def unnumbered(daemon, number, neighbour, interface):
    """Let BGP find its neighbour by router advertisements on the link, in place of the configured neighbour."""
    return daemon.ask(
        "bgpd", "configure terminal", f"router bgp {number}", f"no neighbor {neighbour}",
        f"neighbor {interface} interface remote-as external", f"neighbor {interface} timers 1 3",
    )


def test_prefix_by_the_link_local_next_hop_of_an_unnumbered_neighbour_forwards_and_is_withdrawn(
    topology, gateway, upstream, own, upstream_link_local
):
    unnumbered(upstream, 65001, "2001:db8:a::2", "eth0")
    unnumbered(own, 65000, GLOBAL, "outside")
    wait_for(gateway, (upstream_link_local, "outside", "bgp"))
    wait_for_return(topology)
    assert reaches(topology)
    upstream.ask("bgpd", "configure terminal", "router bgp 65001", "address-family ipv4 unicast", f"no network {SERVERS}")
    wait_for(gateway)
    assert not reaches(topology)


def not_followed(gateway, reason):
    counters = gateway.show("routers")["routers"][0]["fpm"]["not-followed"]
    return sum(counter["count"] for counter in counters if counter["name"] == reason)


def test_gateway_that_is_not_in_the_message_is_counted_and_is_there_again_with_numbered_next_hops(
    topology, gateway, upstream, own, upstream_link_local
):
    upstream.ask("bgpd", "configure terminal", "router bgp 65001", "address-family ipv4 unicast", f"network {SERVERS}")
    wait_for(gateway, (upstream_link_local, "outside", "bgp"))
    before = not_followed(gateway, "placeholder-gateway")
    own.ask("zebra", "configure terminal", "no fpm use-next-hop-groups")
    waiting.until(lambda: not_followed(gateway, "placeholder-gateway") > before, "169.254.0.1 to be refused", 30)
    own.ask("zebra", "configure terminal", "fpm use-next-hop-groups")
    wait_for(gateway, (upstream_link_local, "outside", "bgp"))
    assert reaches(topology)


def test_route_of_the_kernel_by_a_gateway_of_ipv6_comes_from_the_kernel_and_not_by_fpm(
    topology, gateway, document, own, upstream_link_local
):
    host = own.host
    before = not_followed(gateway, "connected")
    host.run("ip", "route", "add", "198.51.100.130/32", "via", "inet6", upstream_link_local, "dev", "outside")
    waiting.until(lambda: not_followed(gateway, "connected") > before, "zebra to tell it as the kernel's", 30)
    assert not via(gateway, "198.51.100.130/32")
    gateway.apply(configuration.changed(document, routers={"default": {"kernel-routes": True}}))
    waiting.until(
        lambda: via(gateway, "198.51.100.130/32") == [(upstream_link_local, "outside", "boot")], "the kernel's route", 30
    )
    assert reaches(topology)
    host.run("ip", "route", "delete", "198.51.100.130/32")
    waiting.until(lambda: not via(gateway, "198.51.100.130/32"), "it to go", 30)
