"""Tests routes that FRR sends by FPM. The routes are used, change, survive the daemon for the grace period, and are
removed."""

import signal

import pytest

from lab import configuration, waiting
from lab.host import Host, connect
from lab.pings import counts, none_lost
from lab.routing import Frr
from lab.topology import Topology

pytestmark = pytest.mark.sluice

UPSTREAM = "198.51.100.1"
OTHER = "198.51.100.7"
GRACE = 12


@pytest.fixture(scope="module")
def topology():
    """FRR runs on a separate host with a separate link to the gateway's host. FRR's configuration also contains the
    outside link."""
    made = Topology()
    made.frr = Host("frr", made.folder)
    made.hosts.append(made.frr)
    connect(made.gateway, "tell", made.frr, "eth0")
    made.gateway.run("ip", "address", "add", "10.255.0.1/30", "dev", "tell")
    made.frr.run("ip", "address", "add", "10.255.0.2/30", "dev", "eth0")
    connect(made.frr, "outside", made.frr, "beyond")
    made.frr.run("ip", "address", "add", "198.51.100.10/25", "dev", "outside")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def document():
    """The configuration without an IPv4 default route."""
    document = configuration.standard()
    document["routes"] = [{"to": "::/0", "via": "2001:db8:a::1"}]
    document["routers"] = {
        "default": {"fpm": {"listen": "10.255.0.1:2620", "peers": ["10.255.0.2"], "grace": f"{GRACE}s"}},
    }
    return document


@pytest.fixture(scope="module")
def frr(topology, gateway):
    made = Frr(topology.frr, "10.255.0.1")
    made.start()
    made.configure(f"ip route 0.0.0.0/0 {UPSTREAM}")
    return made


def wait_for(gateway, destination, via, timeout=30):
    waiting.until(
        lambda: any(
            (row["to"], row.get("via")) == (destination, via) for row in gateway.show("routes")["routes"]
        ), f"{destination} via {via}", timeout,
    )


def wait_gone(gateway, destination, timeout=30):
    waiting.until(
        lambda: all(row["to"] != destination for row in gateway.show("routes")["routes"]), f"no {destination}", timeout
    )


def pings(host, address, *flags):
    """Number of lost pings."""
    output = host.run("ping", "-n", "-q", *flags, address, check=False, timeout=120)
    sent, received = counts(output)
    return sent - received


def test_route_that_frr_tells_forwards(topology, gateway, frr):
    wait_for(gateway, "0.0.0.0/0", UPSTREAM)
    assert 0 == pings(topology.alice, topology.server.address, "-c", "3", "-W", "5")


def test_routes_are_replaced_and_withdrawn_as_frr_says(gateway, frr):
    frr.configure(f"ip route 203.0.113.128/25 {UPSTREAM}", f"ip route 203.0.113.128/25 {OTHER}")
    waiting.until(
        lambda: any(row["to"] == "203.0.113.128/25" for row in gateway.show("routes")["routes"]), "the route", 30
    )
    frr.configure(f"no ip route 203.0.113.128/25 {UPSTREAM}")
    wait_for(gateway, "203.0.113.128/25", OTHER)
    frr.configure(f"ip route 203.0.113.128/25 {UPSTREAM}", f"no ip route 203.0.113.128/25 {OTHER}")
    wait_for(gateway, "203.0.113.128/25", UPSTREAM)
    frr.configure(f"no ip route 203.0.113.128/25 {UPSTREAM}", "ip route 203.0.113.128/26 blackhole")
    wait_gone(gateway, "203.0.113.128/25")
    waiting.until(
        lambda: any(row["to"] == "203.0.113.128/26" for row in gateway.show("routes")["routes"]), "the blackhole", 30
    )
    frr.configure("no ip route 203.0.113.128/26 blackhole")
    wait_gone(gateway, "203.0.113.128/26")


def test_static_route_comes_before_one_that_is_told_and_another_configuration_leaves_that_alone(gateway, frr, document):
    frr.configure(f"ip route 203.0.113.192/26 {UPSTREAM}")
    wait_for(gateway, "203.0.113.192/26", UPSTREAM)
    gateway.apply(configuration.changed(
        document, routes=[*document["routes"], {"to": "203.0.113.192/26", "via": OTHER}],
    ))
    wait_for(gateway, "203.0.113.192/26", OTHER)
    wait_for(gateway, "0.0.0.0/0", UPSTREAM)
    gateway.apply(document)
    wait_for(gateway, "203.0.113.192/26", UPSTREAM)
    frr.configure(f"no ip route 203.0.113.192/26 {UPSTREAM}")
    wait_gone(gateway, "203.0.113.192/26")


def test_daemon_that_is_killed_and_started_again_loses_no_packet(topology, gateway, frr):
    wait_for(gateway, "0.0.0.0/0", UPSTREAM)
    before = gateway.process.output.count("sends routes")
    alice = topology.alice
    ping = alice.spawn("ping", "-n", "-q", "-i", "0.02", topology.server.address, label="ping")
    frr.kill()
    gateway.process.wait_for_line("the daemon disconnected")
    frr.start()
    waiting.until(
        lambda: gateway.process.output.count("sends routes") > before, "FRR to tell its routes again", 30
    )
    frr.configure(f"ip route 203.0.113.128/25 {UPSTREAM}")
    wait_for(gateway, "203.0.113.128/25", UPSTREAM)
    assert none_lost(ping) > 50


def test_routes_of_a_daemon_that_stays_away_go_after_the_grace_period(topology, gateway, frr):
    wait_for(gateway, "0.0.0.0/0", UPSTREAM)
    frr.kill()
    assert 0 == pings(topology.alice, topology.server.address, "-c", "3", "-W", "5")
    wait_gone(gateway, "0.0.0.0/0", GRACE + 30)
    assert 3 == pings(topology.alice, topology.server.address, "-c", "3", "-W", "1", "-i", "0.2")
    frr.start()
    wait_for(gateway, "0.0.0.0/0", UPSTREAM)
    assert 0 == pings(topology.alice, topology.server.address, "-c", "3", "-W", "5")


IDLE = """
import socket, sys, time
held = []
for source in sys.argv[1:]:
    for _ in range(6):
        held.append(socket.create_connection(("10.255.0.1", 2620), 5, (source, 0)))
print("connected", flush=True)
time.sleep(600)
"""

def refused(gateway):
    fpm = gateway.show("routers")["routers"][0]["fpm"]
    return {counter["name"]: counter["count"] for counter in fpm["refused-by"]}


def test_connections_that_say_nothing_and_hosts_that_are_not_named_keep_nobody_out(topology, gateway, frr):
    wait_for(gateway, "0.0.0.0/0", UPSTREAM)
    topology.frr.run("ip", "address", "add", "10.255.0.9/32", "dev", "eth0")
    topology.gateway.run("ip", "route", "add", "10.255.0.9/32", "dev", "tell")
    idle = topology.frr.spawn("python3", "-c", IDLE, "10.255.0.2", "10.255.0.9", label="idle")
    idle.wait_for_line("connected")
    waiting.until(lambda: refused(gateway).get("not-named") == 6, "the refusals", 30)
    before = gateway.process.output.count("sends routes")
    frr.kill()
    frr.start()
    frr.configure(f"ip route 203.0.113.128/25 {UPSTREAM}")
    waiting.until(lambda: gateway.process.output.count("sends routes") > before, "FRR to tell its routes", 30)
    wait_for(gateway, "203.0.113.128/25", UPSTREAM)
    # The gateway closes the connections of peers that continue to send nothing.
    waiting.until(lambda: refused(gateway).get("silent") == 6, "the end of the silent ones", 60)
    idle.signal(signal.SIGTERM)
    assert "refused (6 not-named, 6 silent)" in gateway.command("show", "routers")
