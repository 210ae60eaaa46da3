"""Tests that shards move from a busy worker to another worker during downloads. No packet is lost, and no session
ends."""

import hashlib
import threading
import time

import pytest

from lab import configuration

pytestmark = pytest.mark.sluice


@pytest.fixture(scope="module")
def document():
    # With one queue, the first worker receives all packets. It is therefore busier than the second worker, and hands
    # shards over.
    return configuration.changed(
        configuration.standard(),
        system={"workers": 2, "rebalance": {"busy": 0, "difference": 1}},
    )


def test_downloads_go_on_while_their_shards_move(topology, gateway, services, folder):
    addresses = [f"192.168.1.{number}" for number in range(20, 32)]
    for address in addresses:
        topology.alice.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
    digests, end = [], time.monotonic() + 15

    def download(number, address):
        while time.monotonic() < end:
            path = f"{folder}/{number}.bin"
            topology.alice.run("curl", "-sS", "--fail", "--max-time", "50", "--limit-rate", "2M", "--interface", address,
                               "-o", path, f"http://{topology.server.address}/download.bin")
            with open(path, "rb") as file:
                digests.append(hashlib.sha256(file.read()).hexdigest())

    threads = [threading.Thread(target=download, args=each) for each in enumerate(addresses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) >= len(addresses)
    assert {services.digest} == set(digests)
    cores = gateway.cores()
    moved = sum(core["shards-taken"] for core in cores)
    assert moved > 0, str([(core["busy"], core["shards"]) for core in cores])
    assert 16 == sum(core["shards"] for core in cores)
    assert {0} == {core["leaked"] for core in cores}
    drops = gateway.drops()
    assert 0 == drops["moving-full"]
    # Sessions are listed and counted by their new worker.
    listed = len(gateway.show("sessions")["sessions"])
    assert listed > 0
    assert abs(listed - sum(core["sessions"] for core in cores)) <= 24
