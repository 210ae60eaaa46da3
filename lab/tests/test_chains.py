"""Tests chains: the effect of a router's steps before session lookup, as observed by hosts."""

import copy
import os
import shutil
import subprocess

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.topology import Customers
from lab.wire import IP, UDP, Ether, Raw, Wire

pytestmark = pytest.mark.sluice

SERVER = "198.51.100.1"


@pytest.fixture(scope="module")
def topology():
    made = Customers()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def document():
    interfaces = {}
    for name in Customers.NAMES:
        interfaces[f"{name}-in"] = {"device": f"{name}-in", "router": name, "addresses": ["10.0.0.1/24"]}
        interfaces[f"{name}-out"] = {"device": f"{name}-out", "router": name, "addresses": ["198.51.100.2/25"]}
    # Packets from red's host are copied to blue's server.
    red = {
        "nat": {"source": [{"from": "10.0.0.0/24", "out": "red-out", "pool": "red"}]},
        "chains": {
            "input": [
                {"count": "all"},
                {"classify": {"protocol": "udp", "to-port": 5060}, "to": "voice"},
                {"classify": {"protocol": "udp", "to-port": 7}, "to": "policed"},
                {"classify": {"protocol": "udp", "to-port": 9}, "to": "refused"},
                {"classify": {"protocol": "udp", "to-port": 5353}, "to": "watched"},
                "sessions",
                "forward",
            ],
            "voice": [{"count": "voice"}, "forward"],
            "policed": [{"police": {"packets": 1, "burst": 5}}, "sessions", "forward"],
            "refused": ["drop"],
            "watched": [{"mirror": "blue-out"}, "sessions", "forward"],
        },
    }
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": interfaces,
        "routers": {"red": red, "blue": {}},
        "nat": {"pools": {"red": {"addresses": ["203.0.113.16/28"]}}},
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document)
    made.start()
    for host, target in [(topology.customers["red"], SERVER), (topology.servers["red"], "198.51.100.2")]:
        waiting.until(lambda: "1 received" in host.run("ping", "-c1", "-W1", target, check=False), f"{target} to answer")
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def as_configured(gateway, document):
    yield
    if gateway.document != document:
        gateway.apply(document)


def udp(topology, port, payload):
    """A datagram from red's host to red's server."""
    host, router = topology.customers["red"], topology.gateway
    return Ether(src=host.mac("eth0"), dst=router.mac("red-in")) / IP(src="10.0.0.2", dst=SERVER) / UDP(
        sport=4000, dport=port) / Raw(payload)


def payload(frame):
    return bytes(frame[UDP].payload) if UDP in frame else b""


def steps(gateway, chain):
    """Packet counters of the steps of one of red's chains."""
    chains = gateway.show("graph", "--router", "red")["chains"]
    found = next(found for found in chains if found["name"] == chain)
    return {step["step"]: step.get("packets") for step in found["steps"]}


def test_class_leads_past_the_translation_and_everything_else_to_it(gateway, topology):
    before = steps(gateway, "voice")["count voice"]
    with Wire(topology.customers["red"]) as inside, Wire(topology.servers["red"]) as outside:
        inside.send(udp(topology, 5060, b"a call"), udp(topology, 80, b"no call"))
        call = outside.expect(lambda frame: payload(frame) == b"a call")
        assert "10.0.0.2" == call[IP].src
        other = outside.expect(lambda frame: payload(frame) == b"no call")
        assert other[IP].src.startswith("203.0.113.")
    assert before + 1 == steps(gateway, "voice")["count voice"]


def test_policer_lets_its_burst_pass_and_counts_what_it_drops(gateway, topology):
    before = gateway.drops().get("chain-policed", 0)
    with Wire(topology.customers["red"]) as inside, Wire(topology.servers["red"]) as outside:
        inside.send(*[udp(topology, 7, b"many %d" % number) for number in range(200)], udp(topology, 80, b"the last"))
        passed = outside.until(lambda frame: payload(frame) == b"the last")
    passed = [frame for frame in passed if payload(frame).startswith(b"many")]
    # The policer passes the burst, and the tokens that were added while the packets arrived.
    assert 5 <= len(passed) < 100
    assert before + 200 - len(passed) == gateway.drops()["chain-policed"]


def test_drop_is_counted_under_its_name(gateway, topology):
    before = gateway.drops().get("chain-drop", 0)
    with Wire(topology.customers["red"]) as inside:
        inside.send(*[udp(topology, 9, b"refused")] * 3)
        gateway.wait_for_drop("chain-drop", before + 2)
    assert before + 3 == gateway.drops()["chain-drop"]


def test_mirror_sends_a_copy_byte_by_byte_and_the_packet_too(gateway, topology):
    frame = udp(topology, 5353, b"watch this")
    with Wire(topology.customers["red"]) as inside, Wire(topology.servers["red"]) as outside, \
            Wire(topology.servers["blue"]) as probe:
        inside.send(frame)
        assert bytes(frame) == bytes(probe.expect(lambda seen: payload(seen) == b"watch this"))
        assert outside.expect(lambda seen: payload(seen) == b"watch this")[IP].src.startswith("203.0.113.")
    assert {"mirror blue-out": 1, "sessions, forward": 1} == steps(gateway, "watched")


def test_other_chains_come_with_a_commit_and_counters_of_their_name_stay(gateway, topology, document):
    before = steps(gateway, "input")["count all"]
    assert before > 0
    changed = copy.deepcopy(document)
    changed["routers"]["red"]["chains"] = {"input": [{"count": "new"}, {"count": "all"}, "drop"]}
    gateway.apply(changed)
    with Wire(topology.customers["red"]) as inside:
        inside.send(udp(topology, 80, b"nothing passes"))
        waiting.until(lambda: steps(gateway, "input")["drop"] == 1, "the packet to be dropped")
    now = steps(gateway, "input")
    assert (1, before + 1) == (now["count new"], now["count all"])
    assert "packets would pass the chains in a loop: input → a → input" in gateway.command(
        "apply", gateway.write({**changed, "routers": {**changed["routers"], "red": {"chains": {
            "input": [{"to": "a"}], "a": [{"to": "input"}],
        }}}}, "round.toml"), check=False)


def test_graph_shows_what_the_router_has_as_text_and_for_graphviz(gateway):
    red, blue = [gateway.command("show", "graph", "--router", name) for name in Customers.NAMES]
    for text in ["-- its router has chains --> chain", "-- no session --> slow-path", "classify protocol udp, to-port 5060"]:
        assert text in red, red
        assert text not in blue, blue
    work = {node["name"]: node["work"] for node in gateway.show("graph")["nodes"] if "work" in node}
    assert work["chain"]["packets"] >= work["chain"]["runs"] > 0 and work["chain"]["cycles"] > 0
    picture = gateway.command("show", "graph", "--dot")
    assert '"red/input" -> "red/voice"' in picture
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg", "-o", os.devnull], input=picture, text=True, check=True)
