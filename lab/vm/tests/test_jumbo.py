"""Tests frames of 9,000 bytes from a client at a card of each kind to a client at a card of the next kind, without
fragmentation."""

import hashlib

import pytest

from lab.pings import answered
from lab.vm import cards
from lab.vm.lanes import Files, request, running

MTU = 9000
# The kind with two queues is omitted. It needs twice the buffers, and would test nothing else.
KINDS = [name for name in cards.KINDS if name != "virtio-mq"]

pytestmark = pytest.mark.parametrize("lane", KINDS, indirect=True)


def addresses(number):
    """Addresses of the gateway and the client on the link with this number."""
    return [(f"10.9.{number}.{last}", f"2001:db8:9:{number}::{last}") for last in (1, 2)]


@pytest.fixture(scope="module")
def gateway(guest):
    """A gateway with one router that connects a client at a card of each kind."""
    lanes = [lane for lane in guest.lanes.values() if lane.name in KINDS]
    interfaces, added = {}, []
    for number, lane in enumerate(lanes, 1):
        (own, own6), (client, client6) = addresses(number)
        interfaces[lane.inside.name] = {"device": guest.address(lane.inside), "mtu": MTU, "addresses": [f"{own}/24", f"{own6}/64"]}
        lane.client.run("ip", "link", "set", "eth0", "mtu", MTU)
        for words in [
            ("-4", "address", "add", f"{client}/24", "dev", "eth0"), ("-4", "route", "add", "10.9.0.0/16", "via", own),
            ("-6", "address", "add", f"{client6}/64", "dev", "eth0", "nodad"), ("-6", "route", "add", "2001:db8:9::/48", "via", own6),
        ]:
            lane.client.run("ip", *words)
            added.append((lane.client, words))
    document = {
        "system": {"name": "guest", "workers": 1},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/control"},
        "interfaces": interfaces,
    }
    with running(guest, document, lanes) as gateway:
        gateway.lanes = lanes
        yield gateway
    for host, words in reversed(added):
        host.run("ip", *["delete" if word == "add" else word for word in words if word != "nodad"])
    for lane in lanes:
        lane.client.run("ip", "link", "set", "eth0", "mtu", "1500")


@pytest.fixture
def following(gateway, lane):
    """The lane after the given lane, and the addresses of its client."""
    number = (gateway.lanes.index(lane) + 1) % len(gateway.lanes)
    return gateway.lanes[number], addresses(number + 1)[1]


def test_packet_as_large_as_the_link_goes_through_whole(lane, following):
    for address, overhead in zip(following[1], (28, 48)):
        assert answered(lane.ping("-M", "do", "-s", MTU - overhead, address=address, count=3), 3)


def test_file_in_large_segments_has_the_same_hash(gateway, lane, following):
    other, there = following

    def counters():
        return {row["name"]: row for row in gateway.show("interfaces")["interfaces"]}[lane.inside.name]

    files, before = Files(other.client), counters()
    try:
        for address in there:
            assert files.digest == hashlib.sha256(request(lane.client, address)).hexdigest()
    finally:
        files.stop()
    after = counters()
    sent, size = (after[name] - before[name] for name in ("sent", "sent-bytes"))
    assert size / sent > 5000
