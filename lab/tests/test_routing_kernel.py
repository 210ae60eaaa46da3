"""Tests routes of a router's own namespace. Routes of BIRD and `ip route` are used, and FRR in the namespace sends
its routes by FPM."""

import ipaddress

import pytest

from lab import configuration, waiting
from lab.gateway import Sluice
from lab.host import Host
from lab.pings import answered
from lab.routing import Frr

pytestmark = pytest.mark.sluice

UPSTREAM = "198.51.100.1"
OTHER = "198.51.100.7"


@pytest.fixture(scope="module")
def document():
    """The configuration without an IPv4 default route."""
    return configuration.changed(
        configuration.standard(), routes=[{"to": "::/0", "via": "2001:db8:a::1"}], routers={"default": {"daemon": True}},
    )


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def router(gateway, topology):
    return Host("sluice-default", topology.folder, make=False)


def ways(gateway, destination):
    """Gateway, interface and source of each route to a destination."""
    rows = [row for row in gateway.show("routes")["routes"] if row["to"] == destination]
    return sorted((row.get("via"), row.get("interface"), row["kind"]) for row in rows)


def wait_for(gateway, destination, *wanted):
    def leads():
        found = ways(gateway, destination)
        if found != sorted(wanted):
            raise LookupError(f"{found}")
        return True

    waiting.until(leads, f"{destination} by {wanted}", 20)


def test_route_that_is_added_in_the_namespace_forwards_until_it_is_taken_away(topology, gateway, router):
    router.run("ip", "route", "add", "default", "via", UPSTREAM)
    wait_for(gateway, "0.0.0.0/0", (UPSTREAM, "outside", "boot"))
    assert answered(topology.alice.run("ping", "-c3", "-i0.2", "-w9", topology.server.address), 3)
    router.run("ip", "route", "replace", "default", "via", OTHER)
    wait_for(gateway, "0.0.0.0/0", (OTHER, "outside", "boot"))
    router.run("ip", "route", "delete", "default")
    wait_for(gateway, "0.0.0.0/0")


def test_flow_that_goes_on_follows_a_route_that_changes_goes_and_comes_back(topology, gateway, router):
    router.run("ip", "route", "add", "default", "via", UPSTREAM)
    wait_for(gateway, "0.0.0.0/0", (UPSTREAM, "outside", "boot"))
    ping = topology.alice.spawn("ping", "-n", "-i0.05", "-c1000", topology.server.address)

    def answers():
        return ping.output.count("bytes from")

    def goes_on(before):
        waiting.until(lambda: answers() > before + 3, "answers")

    def stops(error):
        waiting.until(lambda: error in ping.output, error, 20)
        return answers()

    goes_on(0)
    flows = {session["forward"]["source-port"] for session in gateway.show("sessions")["sessions"]}
    # No host has this gateway address.
    router.run("ip", "route", "replace", "default", "via", OTHER)
    silent = stops("Host Unreachable")
    router.run("ip", "route", "replace", "default", "via", UPSTREAM)
    goes_on(silent)
    router.run("ip", "route", "delete", "default")
    silent = stops("Net Unreachable")
    router.run("ip", "route", "add", "default", "via", UPSTREAM)
    goes_on(silent)
    assert flows == {session["forward"]["source-port"] for session in gateway.show("sessions")["sessions"]}
    ping.stop()
    router.run("ip", "route", "delete", "default")
    wait_for(gateway, "0.0.0.0/0")


def test_route_of_several_ways_has_them_all(gateway, router):
    hops = [word for via in [UPSTREAM, OTHER] for word in ("nexthop", "via", via)]
    router.run("ip", "route", "add", "203.0.113.128/25", *hops)
    wait_for(gateway, "203.0.113.128/25", *((via, "outside", "boot") for via in [UPSTREAM, OTHER]))
    router.run("ip", "route", "delete", "203.0.113.128/25")
    wait_for(gateway, "203.0.113.128/25")


def test_list_of_more_routes_than_a_page_has_each_once(topology, gateway, router):
    networks = {f"10.{80 + number // 250}.{number % 250}.0/24" for number in range(3000)}

    def batch(word):
        path = f"{topology.folder}/routes"
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"route {word} {network} via {UPSTREAM}\n" for network in sorted(networks))
        router.run("ip", "-batch", path)

    def listed():
        rows = gateway.show("routes")["routes"]
        return sorted(row["to"] for row in rows if row["kind"] == "boot")

    batch("add")
    waiting.until(lambda: listed() == sorted(networks), "all routes")
    text = [line.split()[1] for line in gateway.command("show", "routes").splitlines() if " boot " in line]
    assert sorted(networks, key=ipaddress.ip_network) == text
    batch("delete")
    waiting.until(lambda: not listed(), "no routes")


def test_route_onto_a_link_and_routes_of_ipv6_are_taken_over(gateway, router):
    router.run("ip", "route", "add", "192.0.2.0/24", "dev", "inside2")
    router.run("ip", "-6", "route", "add", "2001:db8:ff::/48", "via", "2001:db8:a::1")
    router.run("ip", "-6", "route", "add", "blackhole", "2001:db8:fe::/48")
    wait_for(gateway, "192.0.2.0/24", (None, "inside2", "boot"))
    wait_for(gateway, "2001:db8:ff::/48", ("2001:db8:a::1", "outside", "boot"))
    wait_for(gateway, "2001:db8:fe::/48", (None, None, "boot"))
    # Routes that the kernel derives from the router's own addresses are not reported twice.
    assert [(None, "inside1", "connected")] == ways(gateway, "192.168.1.0/24")


def test_route_in_the_namespace_follows_an_interface_that_comes(gateway, router, document):
    changed = configuration.changed(
        document, interfaces={"staff": {"parent": "inside2", "vlan": "100", "addresses": ["192.168.100.1/24"]}},
    )
    gateway.apply(changed)
    waiting.until(lambda: "staff" in router.run("ip", "link"), "the interface in the namespace")
    router.run("ip", "route", "add", "192.0.3.0/24", "via", "192.168.100.2")
    wait_for(gateway, "192.0.3.0/24", ("192.168.100.2", "staff", "boot"))
    gateway.apply(document)
    wait_for(gateway, "192.0.3.0/24")
    wait_for(gateway, "192.0.2.0/24", (None, "inside2", "boot"))


def test_frr_in_the_namespace_tells_its_routes_by_fpm(topology, gateway, router, document):
    gateway.apply(configuration.changed(document, routers={"default": {"fpm": {"listen": "127.0.0.1:2620"}}}))
    # The gateway uses FRR's routes from FPM, and no longer the kernel's routes.
    wait_for(gateway, "192.0.2.0/24")
    frr = Frr(router, "127.0.0.1")
    frr.start()
    frr.configure(f"ip route 0.0.0.0/0 {UPSTREAM}", "ip route 192.0.4.0/24 inside2")
    wait_for(gateway, "0.0.0.0/0", (UPSTREAM, "outside", "static"))
    wait_for(gateway, "192.0.4.0/24", (None, "inside2", "static"))
    assert answered(topology.alice.run("ping", "-c3", "-i0.2", "-w9", topology.server.address), 3)
