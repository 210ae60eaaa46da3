"""Tests `model = "auto"`. The daemon measures, selects a placement, logs the reason, and works with this placement."""

import hashlib
import json
import time

import pytest

from lab import configuration
from lab.wire import IP, UDP, Dot1Q, Ether, Wire

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
    # Every part is assigned to a worker, and the log contains the choice.
    assert {"receive", "parse", "session", "transmit"} <= {part for words in parts for part in words.split("+")}
    chosen = [line for line in said.splitlines() if "run-to-completion on" in line or "receive" in line and " | " in line]
    assert chosen, said


@pytest.fixture
def echoes(topology, services):
    """Echo requests in frames of 242 bytes and their answers, 100 per second in each direction."""
    ping = topology.alice.spawn("ping", "-n", "-i", "0.01", "-s", "200", "-c", "6000", topology.server.address)
    ping.wait_for_line("icmp_seq=5 ")
    yield
    ping.stop()


def test_plan_on_live_traffic_of_the_daemon_sees_its_rate_and_size(gateway, echoes):
    plan = json.loads(gateway.command("plan", "-c", gateway.write(), "--live", "2s", "--json", timeout=120))
    seen = plan["traffic"]["source"]
    assert "daemon" == seen["from"] and seen["seconds"] >= 1.9
    assert 50 * seen["seconds"] < seen["packets"] < 250 * seen["seconds"]
    assert 242 == pytest.approx(seen["bytes"], abs=10)
    kept = {interface["name"]: interface["kept"] for interface in seen["interfaces"]}
    assert kept["inside1"] > 50 and kept["outside"] > 50 and seen["kept"] == sum(kept.values())
    assert plan["choice"]["packets-per-second"] > seen["packets-per-second"]
    # Answers match their sessions, although the measurement translates them differently than the daemon.
    assert plan["traffic"]["forwarded"] > 0.9, plan["traffic"]
    # The daemon continues as before.
    assert gateway.show("interfaces")


def test_plan_on_live_traffic_of_the_kernel_listens_where_no_daemon_runs(topology, binary, echoes, folder):
    document = configuration.standard()
    document["control"]["socket"] = f"{folder}/control"
    document["interfaces"] = {
        "inside": {"device": "eth0", "addresses": ["198.51.100.1/25"]},
        "outside": {"device": "eth1", "addresses": ["198.51.100.129/25"]},
    }
    document["routes"] = [{"to": "203.0.113.0/24", "via": "198.51.100.2"}]
    del document["nat"]
    path = f"{folder}/upstream.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(configuration.text(document))
    plan = json.loads(topology.upstream.run(binary, "plan", "-c", path, "--live", "2s", "--json", timeout=120))
    seen = plan["traffic"]["source"]
    assert "kernel" == seen["from"]
    assert 50 * seen["seconds"] < seen["packets"] < 250 * seen["seconds"]
    assert 242 == pytest.approx(seen["bytes"], abs=10)
    # Packets that the host itself sends do not count as received packets.
    kept = {interface["name"]: interface["kept"] for interface in seen["interfaces"]}
    assert kept["inside"] == pytest.approx(kept["outside"], rel=0.2)
    assert plan["traffic"]["forwarded"] > 0.9


def test_plan_on_live_traffic_of_the_kernel_cuts_what_it_has_joined(topology, gateway, services, binary, folder):
    path = f"{folder}/upstream.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'[control]\nsocket = "{folder}/control"\n[interfaces.servers]\ndevice = "eth1"\n')
    topology.server.run("ethtool", "-K", "eth0", "tx", "on", "sg", "on", "tso", "on", "gso", "on")
    try:
        url = f"http://{topology.server.address}/download.bin"
        clients = topology.alice.spawn("sh", "-c", f"while curl -sS --limit-rate 4M -o /dev/null {url}; do :; done")
        plan = json.loads(topology.upstream.run(binary, "plan", "-c", path, "--live", "2s", "--json", timeout=120))
        clients.stop()
    finally:
        topology.server.run("ethtool", "-K", "eth0", "gso", "off", "tso", "off", "sg", "off", "tx", "off")
    source = plan["traffic"]["source"]
    assert source["joined"] > 0 and source["too-long"] == 0, source
    assert 1000 < plan["traffic"]["bytes"] <= 1514


def test_plan_on_live_traffic_of_the_kernel_keeps_tags(topology, gateway, binary, folder):
    path = f"{folder}/trunk.toml"
    vlan = '[interfaces.%s]\nparent = "trunk"\nvlan = "%d"\naddresses = ["10.%d.0.1/24"]\n'
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'[control]\nsocket = "{folder}/control"\n[interfaces.trunk]\ndevice = "eth0"\n')
        file.write(vlan % ("guests", 7, 7) + vlan % ("staff", 8, 8))
    bob = topology.bob
    plan = bob.spawn(binary, "plan", "-c", path, "--live", "1s", "--json")
    with Wire(topology.gateway, "inside2") as wire:
        frame = Ether(src=wire.mac, dst=bob.mac("eth0")) / Dot1Q(vlan=7) / IP(src="10.7.0.2", dst="10.8.0.2")
        while plan.running:
            wire.send(frame / UDP(sport=1000, dport=2000) / bytes(100))
            time.sleep(0.01)
    plan = json.loads(plan.output)
    assert 146 == pytest.approx(plan["traffic"]["bytes"], abs=5)
    assert plan["traffic"]["forwarded"] > 0.9, plan["traffic"]


def test_plan_on_silence_is_refused_with_what_to_do(topology, binary, folder):
    path = f"{folder}/silent.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('[control]\nsocket = "%s/control"\n[interfaces.inside]\ndevice = "lo"\n' % folder)
    said = topology.bob.run(binary, "plan", "-c", path, "--live", "1s", check=False)
    assert "no packet came to inside (lo) within 1 s" in said and "--live 60s" in said
