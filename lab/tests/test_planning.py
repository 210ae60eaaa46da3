"""`model = "auto"`: the daemon measures, chooses who does what, says why, and works as chosen."""

import hashlib

import pytest

from lab import configuration

pytestmark = pytest.mark.sluice


@pytest.fixture(scope="module")
def document():
    return configuration.changed(configuration.standard(), system={"model": "auto", "workers": 2})


def test_daemon_runs_as_planned_and_tells_why(topology, gateway, services, folder):
    path = f"{folder}/download.bin"
    topology.alice.run("curl", "-sS", "--fail", "--max-time", "50", "-o", path,
                       f"http://{topology.server.address}/download.bin")
    with open(path, "rb") as file:
        assert services.digest == hashlib.sha256(file.read()).hexdigest()
    cores = gateway.show("cores")["cores"]
    parts = [core["parts"] for core in cores]
    said = gateway.process.output
    for core in cores:
        assert f"worker {core['worker']} on core {core['core']}: {core['parts']}, {core['shards']} shards" in said
    # Every part is somebody's, and the log names the choice.
    assert {"receive", "parse", "session", "transmit"} <= {part for words in parts for part in words.split("+")}
    chosen = [line for line in said.splitlines() if "run-to-completion on" in line or "receive" in line and " | " in line]
    assert chosen, said
