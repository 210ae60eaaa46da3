"""Tests a transparent bridge between a client and a server. All traffic passes, except packets that match a drop
rule."""

import hashlib
import json
import os

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.pings import answered
from lab.services import NAME, Services
from lab.topology import Bridged
from lab.wire import IP, UDP, Dot1Q, Ether, Raw, Wire

pytestmark = pytest.mark.sluice

EICAR = r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"

RULES = r"""
drop tcp any any -> any any (msg:"EICAR test file"; flow:to_client,established; file_data; content:"EICAR-STANDARD-ANTIVIRUS-TEST-FILE"; sid:1;)
reject tcp any any -> any 80 (msg:"path"; flow:to_server,established; http.uri; content:"/forbidden"; sid:2;)
"""


@pytest.fixture(scope="module", params=[1500, 9000], ids=["afxdp", "jumbo"])
def topology(request):
    made = Bridged(mtu=request.param)
    made.mtu = request.param
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    made = Services(topology.server)
    with open(os.path.join(made.folder, "files", "eicar.com"), "w", encoding="ascii") as file:
        file.write("padding " * 4000 + EICAR + " padding" * 4000)
    return made


@pytest.fixture(scope="module")
def document(topology):
    rules = os.path.join(topology.gateway.folder, "lab.rules")
    with open(rules, "w", encoding="ascii") as file:
        file.write(RULES)
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 4096},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {name: {"device": name, "mtu": topology.mtu} for name in ["left", "right"]},
        "bridges": {"wire": {"interfaces": ["left", "right"]}},
        "inspection": {
            "cache": "",
            "interfaces": ["left", "right"],
            "flows": 1024,
            "signatures": [{"file": rules, "dialect": "suricata"}],
        },
    }


@pytest.fixture(scope="module")
def gateway(topology, binary, document):
    made = Sluice(topology.gateway, binary, document)
    made.start()
    yield made
    made.stop()


def _fetch(topology, address, path):
    host = f"[{address}]" if ":" in address else address
    target = os.path.join(topology.alice.folder, "fetched")
    if os.path.exists(target):
        os.remove(target)
    topology.alice.run("curl", "-s", "-g", "-m", "8", "-o", target, f"http://{host}{path}", check=False)
    if not os.path.exists(target):
        return b""
    with open(target, "rb") as file:
        return file.read()


def _bridge(gateway):
    (bridge,) = gateway.show("bridges")["bridges"]
    return bridge


@pytest.mark.parametrize("family", ["address", "address6"])
def test_hosts_reach_one_another_as_over_a_cable(topology, gateway, family):
    address = getattr(topology.server, family)
    room = topology.mtu - (28 if family == "address" else 48)
    output = topology.alice.run("ping", "-n", "-c", "3", "-i", "0.1", "-w", "5", "-t", "1", "-M", "do", "-s", room, address)
    assert answered(output, 3)
    assert topology.server.mac() == topology.alice.mac_of(address)


@pytest.mark.parametrize("family", ["address", "address6"])
def test_download_over_a_bridge_has_the_same_hash(topology, gateway, services, family):
    content = _fetch(topology, getattr(topology.server, family), "/download.bin")
    assert services.digest == hashlib.sha256(content).hexdigest()


def test_names_and_bulk_pass_a_bridge(topology, gateway, services):
    answer = topology.alice.run("dig", "+short", "+time=3", f"@{topology.server.address}", NAME)
    assert topology.server.address in answer
    output = topology.alice.run("iperf3", "--client", topology.server.address, "--json", "--time", "1", "--reverse")
    assert json.loads(output)["end"]["sum_received"]["bytes"] > 1_000_000


@pytest.mark.parametrize("family", ["address", "address6"])
def test_file_that_matches_does_not_cross_whole(topology, gateway, services, family):
    before = gateway.drops().get("signature", 0)
    content = _fetch(topology, getattr(topology.server, family), "/eicar.com")
    assert b"EICAR-STANDARD-ANTIVIRUS-TEST-FILE" not in content
    assert gateway.drops()["signature"] > before


def test_rejected_request_ends_at_once(topology, gateway, services):
    url = f"http://{topology.server.address}/forbidden"
    output = topology.alice.run("curl", "-s", "-m", "8", "-w", "%{exitcode} %{time_total}", url, check=False)
    status, seconds = output.split()
    # curl's exit status 56 means that the peer has reset the connection.
    assert ("56", True) == (status, float(seconds) < 5)


def test_frames_of_every_kind_cross_as_they_are(topology, gateway):
    with Wire(topology.alice) as left, Wire(topology.server) as right:
        for sender, receiver in [(left, right), (right, left)]:
            ether = Ether(src=sender.mac, dst=receiver.mac)
            datagram = IP(src="192.0.2.1", dst="192.0.2.2", ttl=1) / UDP(sport=4000, dport=4001) / Raw(b"as it is")
            frames = [
                ether / Raw(b"\x88\xb5" + bytes(range(64))),
                Ether(src=sender.mac, dst="01:80:c2:00:00:00", type=38) / Raw(b"\x42\x42\x03" + bytes(43)),
                ether / datagram,
                ether / Dot1Q(vlan=7) / datagram,
                Ether(src=sender.mac, dst=receiver.mac, type=0x88A8) / Dot1Q(vlan=7) / Dot1Q(vlan=8) / datagram,
                Ether(src="02:00:00:00:00:77", dst=receiver.mac) / datagram,
                ether / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(dport=4001) / Raw(bytes(topology.mtu - 28)),
            ]
            frames[0].type = 0x88B5
            for frame in map(bytes, frames):
                # The kernel of the receiver removes the outer tag before it delivers a frame.
                tagged = frame[12:14] in (b"\x81\x00", b"\x88\xa8")
                expected = frame[:12] + frame[16:] if tagged else frame
                sender.send(frame)
                receiver.expect(lambda seen, expected=expected: bytes(seen) == expected)
    spared = {counter["name"]: counter["count"] for counter in _bridge(gateway)["exempted"]}
    assert spared["not-ip"] >= 4


def test_frames_that_no_rule_can_look_into_do_not_cross(topology, gateway):
    with Wire(topology.alice) as left, Wire(topology.server) as right:
        for sender, receiver in [(left, right), (right, left)]:
            ether = Ether(src=sender.mac, dst=receiver.mac)
            datagram = IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=4000, dport=4002) / Raw(b"evil")
            mpls = ether / Raw(b"\0\0\x11\x40" + bytes(datagram))
            mpls.type = 0x8847
            unparsable = {
                "bad-header-checksum": ether / IP(src="192.0.2.1", dst="192.0.2.2", chksum=1) / UDP() / Raw(b"wrong"),
                "bad-total-length": ether / IP(src="192.0.2.1", dst="192.0.2.2", len=900) / UDP() / Raw(b"wrong"),
                "too-many-tags": ether / Dot1Q(vlan=7) / Dot1Q(vlan=8) / Dot1Q(vlan=9) / datagram,
                "encapsulated-ip": mpls,
            }
            before = gateway.drops()
            for frame in unparsable.values():
                sender.send(bytes(frame))
            last = bytes(ether / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(dport=4003) / Raw(b"behind them"))
            sender.send(last)
            receiver.expect(lambda seen, last=last: bytes(seen) == last)
            after = gateway.drops()
            assert dict.fromkeys(unparsable, 1) == {name: after.get(name, 0) - before.get(name, 0) for name in unparsable}


def test_link_of_the_other_side_follows(topology, gateway):
    def carrier(host):
        return "LOWER_UP" in host.run("ip", "link", "show", "dev", "eth0")

    for one, other, held in [(topology.alice, topology.server, "right"), (topology.server, topology.alice, "left")]:
        one.run("ip", "link", "set", "eth0", "down")
        waiting.until(lambda other=other: not carrier(other), "the other side to lose its carrier")
        waiting.until(
            lambda held=held: {side["interface"]: side["link"] for side in _bridge(gateway)["sides"]}[held] == "held",
            "the bridge to say so",
        )
        one.run("ip", "link", "set", "eth0", "up")
        waiting.until(lambda other=other: carrier(other), "the other side to have its carrier again")
        waiting.until(
            lambda: "1 received" in topology.alice.run("ping", "-n", "-c1", "-W1", topology.server.address, check=False),
            "packets to cross again", 20,
        )
