"""Tests two workers with single-queue devices, from which the receiving worker hands packets off, and with cards
that select the queue."""

import hashlib
import threading

import pytest

from lab import configuration
from lab.gateway import Sluice
from lab.pings import answered
from lab.services import Services
from lab.topology import Topology

pytestmark = pytest.mark.sluice

# Mapping behaviour of the pool with which the flows of a host are distributed over the shards.
SPREAD = {"mapping": "address-and-port-dependent"}


@pytest.fixture(scope="module", params=["subset", "five-tuple"])
def steering(request):
    return request.param


@pytest.fixture(scope="module")
def topology(steering):
    del steering
    made = Topology()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    return Services(topology.server)


@pytest.fixture(scope="module")
def document(steering):
    return configuration.changed(
        configuration.standard(),
        system={"workers": 2, "steering": steering},
        nat={"pools": {"carrier": SPREAD if steering == "five-tuple" else {}}},
    )


def test_downloads_over_two_workers_have_the_same_hash_and_every_handover_a_cause(topology, gateway, services, folder):
    digests = []

    # With this number of hosts, each worker owns some of them.
    addresses = [f"192.168.1.{number}" for number in range(20, 32)]
    for address in addresses:
        topology.alice.run("ip", "address", "add", f"{address}/24", "dev", "eth0")

    def download(number, address):
        host = topology.alice
        path = f"{folder}/{host.name}-{number}.bin"
        host.run("curl", "-sS", "--fail", "--max-time", "50", "--interface", address, "-o", path,
                 f"http://{topology.server.address}/download.bin")
        with open(path, "rb") as file:
            digests.append(hashlib.sha256(file.read()).hexdigest())

    threads = [threading.Thread(target=download, args=each) for each in enumerate(addresses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [services.digest] * len(addresses) == digests
    cores = gateway.cores()
    assert 2 == len(cores)
    assert {0} == {core["leaked"] for core in cores}
    # With one queue, the first worker receives all packets and hands packets off to the second worker. The second
    # worker can't transmit, and hands packets back.
    assert cores[0]["handed-over-session"] > 0
    assert cores[1]["handed-over-transmit"] > 0
    causes = [sum(count for name, count in core.items() if name.startswith("handed-over-")) for core in cores]
    assert [core["handed-over"] for core in cores] == causes
    gateway.wait_taken_over()


def test_errors_and_fragments_reach_their_session_from_either_worker(topology, gateway, services):
    del services
    for host in (topology.alice, topology.bob):
        # Each ping has another identifier, and therefore possibly another shard.
        for _ in range(4):
            output = host.run("ping", "-c2", "-i0.2", "-w9", "-s", "3000", topology.server.address)
            assert answered(output, 2), str({k: v for k, v in gateway.drops().items() if v})
        output = host.run("traceroute", "-n", "-q1", "-w2", "-m1", topology.server.address)
        assert "192.168." in output


def test_steering_of_a_running_gateway_is_refused_another(gateway, steering):
    other = "five-tuple" if steering == "subset" else "subset"
    changed = configuration.changed(gateway.document, system={"steering": other})
    output = gateway.command("apply", gateway.write(changed, "other.toml"), check=False)
    assert "system.steering" in output


def test_pool_that_keeps_hosts_together_is_refused_only_where_flows_spread(gateway, steering):
    changed = configuration.changed(
        gateway.document, nat={"pools": {"carrier": {"mapping": "endpoint-independent", "block": {}}}}
    )
    output = gateway.command("apply", gateway.write(changed, "together.toml"), check=False)
    assert (steering == "five-tuple") == ("steering" in output and "restart" in output), output


def test_cards_that_hash_get_key_and_table_of_the_shards_and_tell_what_they_hash(topology, binary, steering):
    interface = {"device": "null:", "addresses": ["192.0.2.1/24"]}
    document = {
        "system": {"workers": 2, "steering": steering},
        "control": {"socket": "/run/lab/null"},
        "interfaces": {"card": interface},
    }
    gateway = Sluice(topology.gateway, binary, document)
    gateway.start()
    row = gateway.show("interfaces")["interfaces"][0]
    gateway.stop()
    assert 2 == row["queues"]
    assert row["steering"].startswith("hashes addresses and ports")
    # The null driver reports that it can't hash a single address.
    assert ("can't hash only the source address" in row["steering"]) == (steering == "subset")
