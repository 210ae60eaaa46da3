"""Tests devices that change while the daemon runs. Interfaces are deleted and created again, or added and removed by
`apply`."""

import copy

import pytest

from lab import configuration, waiting
from lab.gateway import Sluice
from lab.host import connect
from lab.topology import Topology

pytestmark = pytest.mark.sluice


@pytest.fixture(scope="module")
def topology():
    made = Topology()
    yield made
    made.remove()


@pytest.fixture(scope="module", params=[1, 2], ids=["one-worker", "two-workers"])
def gateway(request, topology, binary):
    document = configuration.changed(configuration.standard(), system={"workers": request.param})
    made = Sluice(topology.gateway, binary, document)
    made.start()
    yield made
    output = made.stop()
    assert "the devices are closed" in output and "packet buffers leaked" not in output, output


def reaches(host, address, patience=5):
    return "1 received" in host.run("ping", "-n", "-c", "1", "-W", patience, address, check=False)


def link(gateway, name):
    rows = {row["name"]: row["link"] for row in gateway.show("interfaces")["interfaces"]}
    return rows.get(name)


def test_interface_that_is_deleted_and_made_again_is_used_again(topology, gateway):
    alice, bob, server = topology.alice, topology.bob, topology.server
    assert reaches(bob, server.address)
    topology.gateway.run("ip", "link", "delete", "inside2")
    waiting.until(lambda: link(gateway, "inside2") == "down", "the daemon to see that inside2 is gone")
    waiting.until(lambda: "inside2: its device is gone" in gateway.process.output, "the log to say so")
    assert reaches(alice, server.address), "the others go on"
    connect(topology.gateway, "inside2", bob, "eth0", 1500)
    bob.run("ip", "address", "add", f"{bob.address}/24", "dev", "eth0")
    bob.run("ip", "route", "add", "default", "via", bob.gateway)
    bob.run("ip", "-6", "address", "add", f"{bob.address6}/64", "dev", "eth0", "nodad")
    bob.run("ip", "-6", "route", "add", "default", "via", bob.gateway6)
    waiting.until(lambda: reaches(bob, server.address), "packets by the interface that was made again")
    assert reaches(bob, server.address6)
    assert link(gateway, "inside2") == "up"


def test_interface_with_a_device_comes_and_goes_by_apply(topology, gateway):
    alice, server = topology.alice, topology.server
    before = copy.deepcopy(gateway.document)
    with_guests = configuration.changed(before, interfaces={
        "guests": {"device": "guests", "addresses": ["192.168.7.1/24"], "mac": "02:00:00:00:07:01"},
    })
    refused = gateway.command("apply", gateway.write(with_guests, "guests.toml"), check=False)
    assert "interfaces.guests" in refused or "no interface guests" in refused, refused
    assert link(gateway, "guests") is None, "a device that is not there is refused with the whole configuration"
    connect(topology.gateway, "guests", server, "guests", 1500)
    server.run("ip", "address", "add", "192.168.7.2/24", "dev", "guests")
    server.run("ip", "route", "add", "192.168.1.0/24", "via", "192.168.7.1")
    for _ in range(2):
        gateway.apply(with_guests)
        waiting.until(lambda: link(gateway, "guests") == "up", "the added interface to be up")
        waiting.until(lambda: reaches(alice, "192.168.7.2"), "packets by the added interface")
        gateway.apply(before)
        assert link(gateway, "guests") is None
        assert not reaches(alice, "192.168.7.2", patience=1)
        assert "xdp" not in topology.gateway.run("ip", "-d", "link", "show", "dev", "guests"), "the device is given back"
    server.run("ip", "route", "delete", "192.168.1.0/24")
    topology.gateway.run("ip", "link", "delete", "guests")
    assert reaches(alice, server.address)
