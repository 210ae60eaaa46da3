"""Tests pipelines on two cores. Services, hashes and errors are the same for every assignment of graph parts to
workers."""

import hashlib
import threading

import pytest

from lab import configuration
from lab.pings import answered
from lab.services import Services
from lab.topology import Topology

pytestmark = pytest.mark.sluice

# The graph parts and the core of each stage, by name of the pipeline.
PIPELINES = {
    "in-halves": [(["receive", "parse"], [0]), (["session", "transmit"], [1])],
    "transmit-apart": [(["receive", "parse", "session"], [0]), (["transmit"], [1])],
    "there-and-back": [(["receive"], [0]), (["parse", "session"], [1]), (["transmit"], [0])],
}


@pytest.fixture(scope="module", params=list(PIPELINES))
def stages(request):
    return [{"parts": parts, "cores": cores} for parts, cores in PIPELINES[request.param]]


@pytest.fixture(scope="module")
def topology(stages):
    del stages
    made = Topology()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    return Services(topology.server)


@pytest.fixture(scope="module")
def document(stages):
    return configuration.changed(configuration.standard(), system={"model": "pipeline", "stages": stages})


def test_downloads_through_a_pipeline_have_the_same_hash_and_each_worker_does_its_parts(
    topology, gateway, services, folder, stages
):
    digests = []

    def download(host):
        path = f"{folder}/{host.name}.bin"
        host.run("curl", "-sS", "--fail", "--max-time", "50", "-o", path,
                 f"http://{topology.server.address}/download.bin")
        with open(path, "rb") as file:
            digests.append(hashlib.sha256(file.read()).hexdigest())

    threads = [threading.Thread(target=download, args=[host]) for host in (topology.alice, topology.bob)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [services.digest] * 2 == digests
    cores = gateway.cores()
    assert {0} == {core["leaked"] for core in cores}
    for core in cores:
        parts = [part for stage in stages if core["core"] in stage["cores"] for part in stage["parts"]]
        assert "+".join(parts) == core["parts"]
        assert ("session" in parts) == (core["session-packets"] > 0)
        assert ("session" in parts) == (core["shards"] > 0)
    given = {core["core"]: core["handed-over-stage"] + core["handed-over-transmit"] for core in cores}
    assert all(given[stage["cores"][0]] > 0 for stage in stages[:-1])
    gateway.wait_taken_over()


def test_errors_fragments_and_the_gateway_itself_work_through_a_pipeline(topology, gateway, services):
    del services
    for host in (topology.alice, topology.bob):
        for _ in range(3):
            output = host.run("ping", "-c2", "-i0.2", "-w9", "-s", "3000", topology.server.address)
            assert answered(output, 2), str({k: v for k, v in gateway.drops().items() if v})
        output = host.run("traceroute", "-n", "-q1", "-w2", "-m1", topology.server.address)
        assert "192.168." in output


def test_stages_of_a_running_gateway_are_refused_others(gateway):
    changed = configuration.changed(gateway.document, system={"ring": 2048})
    output = gateway.command("apply", gateway.write(changed, "other.toml"), check=False)
    assert "system.ring" in output
