"""Tests each driver of a kernel interface: AF_XDP, and AF_PACKET, which jumbo frames need."""

import hashlib
import json

import pytest

from lab import configuration
from lab.gateway import Sluice
from lab.pings import answered
from lab.services import Services
from lab.topology import Topology

pytestmark = pytest.mark.sluice

MTU = {"AF_XDP": 1500, "AF_PACKET": 9000}


@pytest.fixture(params=MTU)
def driver(request):
    return request.param


@pytest.fixture
def topology(driver):
    made = Topology(mtu=MTU[driver])
    yield made
    made.remove()


@pytest.fixture
def gateway(topology, binary, driver):
    interfaces = {name: {"mtu": MTU[driver]} for name in ("inside1", "inside2", "outside")}
    made = Sluice(topology.gateway, binary, configuration.changed(configuration.standard(), interfaces=interfaces))
    made.start()
    yield made
    made.stop()


def test_driver_is_the_one_that_the_frames_want(gateway, driver):
    assert {driver} == {row["driver"] for row in gateway.show("interfaces")["interfaces"]}


def test_download_over_the_driver_has_the_same_hash(topology, gateway, folder):
    services = Services(topology.server)
    path = f"{folder}/download.bin"
    topology.alice.run("curl", "-sS", "--fail", "-o", path, f"http://{topology.server.address}/download.bin")
    with open(path, "rb") as file:
        assert services.digest == hashlib.sha256(file.read()).hexdigest()
    output = topology.bob.run("iperf3", "--client", topology.server.address, "--json", "--time", "1", "--reverse")
    assert json.loads(output)["end"]["sum_received"]["bytes"] > 1_000_000


def test_packet_as_large_as_the_link_goes_through_unfragmented(topology, gateway, driver):
    for address, overhead in [(topology.server.address, 28), (topology.server.address6, 48)]:
        output = topology.alice.run(
            "ping", "-n", "-c", "2", "-i", "0.05", "-w", "5", "-M", "do", "-s", MTU[driver] - overhead, address
        )
        assert answered(output, 2)
