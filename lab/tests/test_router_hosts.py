"""Tests that the hosts of two routers with the same addresses are isolated from each other."""

import os

import pytest

from lab import configuration
from lab.connection import connect, exchange
from lab.gateway import Sluice
from lab.host import Host
from lab.topology import Customers
from lab.wire import IP, UDP, Ether, Raw, Wire

pytestmark = pytest.mark.sluice

NAMES = Customers.NAMES
BGP = 179


@pytest.fixture(scope="module")
def topology():
    made = Customers()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def document():
    interfaces = {}
    for name in NAMES:
        interfaces[f"{name}-in"] = {"device": f"{name}-in", "router": name, "addresses": ["10.0.0.1/24"]}
        interfaces[f"{name}-out"] = {"device": f"{name}-out", "router": name, "addresses": ["198.51.100.2/25"]}
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": interfaces,
        "routers": {name: {"daemon": True} for name in NAMES},
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document, names=True)
    made.start()
    yield made
    made.stop()
    assert [] == [name for name in os.listdir("/run/netns") if name.startswith("sluice-")]


@pytest.fixture(scope="module")
def hosts(gateway, topology):
    """The hosts of the routers."""
    return {name: Host(f"sluice-{name}", topology.folder, make=False) for name in NAMES}


def test_each_customer_reaches_the_host_of_its_own_router(topology, hosts):
    for name in NAMES:
        for client, address in [(topology.customers[name], "10.0.0.1"), (topology.servers[name], "198.51.100.2")]:
            ours, theirs = connect(client, hosts[name], address, BGP)
            with ours, theirs:
                exchange(ours, theirs)


def test_each_host_reaches_its_own_customer(topology, hosts):
    for name in NAMES:
        ours, theirs = connect(hosts[name], topology.customers[name], "10.0.0.2", 8000)
        with ours, theirs:
            exchange(ours, theirs)


def test_flood_of_a_router_leaves_the_same_class_of_another_alone(topology, gateway, hosts):
    one, other = NAMES[:2]
    flooding = topology.customers[one]
    mac = flooding.mac_of("10.0.0.1")
    ours, theirs = connect(topology.customers[other], hosts[other], "10.0.0.1", 8000)
    with ours, theirs, Wire(flooding) as wire:
        before = gateway.drops().get("punt-policed-other", 0)
        datagram = IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=9, dport=9) / Raw(b"flood")
        flood = bytes(Ether(src=wire.mac, dst=mac) / datagram)
        for _ in range(20):
            wire.send(*[flood] * 1000)
            exchange(ours, theirs)
        gateway.wait_for_drop("punt-policed-other", before)


def test_host_that_goes_leaves_that_of_another_router(topology, gateway, document, hosts):
    one, other = NAMES[:2]
    ours, theirs = connect(topology.customers[other], hosts[other], "10.0.0.1", BGP)
    with ours, theirs:
        gateway.apply(configuration.changed(document, routers={one: {"daemon": False}}))
        assert not os.path.exists(f"/run/netns/sluice-{one}")
        exchange(ours, theirs)
        gateway.apply(document)
        exchange(ours, theirs)
    ours, theirs = connect(topology.customers[one], hosts[one], "10.0.0.1", BGP)
    with ours, theirs:
        exchange(ours, theirs)
