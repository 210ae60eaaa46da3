"""Tests that devices get the configured MTU. Packets of this size pass in both directions, and longer packets are
dropped with a named reason."""

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.topology import Bridged
from lab.wire import IP, UDP, Ether, Raw, Wire

pytestmark = pytest.mark.sluice

TAP = "mtutap"


@pytest.fixture(scope="module", params=[(1280, "veth"), (1500, "veth"), (9000, "veth"), (1280, "tap"), (1500, "tap")], ids=str)
def topology(request):
    mtu, right = request.param
    made = Bridged(folder="/run/lab/mtu", mtu=mtu)
    made.mtu, made.device = mtu, f"tap:{TAP}" if right == "tap" else "right"
    yield made
    made.remove()


@pytest.fixture(scope="module")
def gateway(topology, binary):
    made = Sluice(topology.gateway, binary, {
        "system": {"name": "lab", "workers": 1},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {
            "left": {"device": "left", "mtu": topology.mtu},
            "right": {"device": topology.device, "mtu": topology.mtu},
        },
        "bridges": {"wire": {"interfaces": ["left", "right"]}},
    })
    made.start()
    yield made
    made.stop()


@pytest.fixture
def ends(topology, gateway):
    """The client and the server, with a larger MTU than the gateway."""
    far = (topology.gateway, TAP) if TAP in topology.device else (topology.server, "eth0")
    places = [(topology.alice, "eth0"), far]
    for host, interface in places:
        host.run("ip", "link", "set", interface, "up", "mtu", topology.mtu + 100)
        waiting.until(
            lambda host=host, interface=interface: "LOWER_UP" in host.run("ip", "link", "show", "dev", interface),
            f"a carrier of {interface}",
        )
    wires = [Wire(host, interface) for host, interface in places]
    yield wires
    for wire in wires:
        wire.__exit__()


def _frame(sender, receiver, length, port):
    datagram = IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=4000, dport=port) / Raw(bytes(length - 28))
    return bytes(Ether(src=sender.mac, dst=receiver.mac) / datagram)


def test_packet_as_long_as_the_mtu_crosses_both_ways(topology, gateway, ends):
    for sender, receiver in [ends, ends[::-1]]:
        for length in [100, topology.mtu - 1, topology.mtu]:
            frame = _frame(sender, receiver, length, 4001)
            sender.send(frame)
            receiver.expect(lambda seen, frame=frame: bytes(seen) == frame)


def test_longer_packet_is_dropped_by_name_both_ways(topology, gateway, ends):
    for sender, receiver in [ends, ends[::-1]]:
        before = gateway.drops()
        sender.send(_frame(sender, receiver, topology.mtu + 1, 4002))
        behind = _frame(sender, receiver, 100, 4003)
        sender.send(behind)
        receiver.expect(lambda seen, behind=behind: bytes(seen) == behind)
        after = gateway.drops()
        assert {"longer-than-mtu": 1} == {
            name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)
        }
