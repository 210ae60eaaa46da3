"""Tests every kind of card as an interface of a bridge. The card receives frames to any address, with unchanged
tags."""

import pytest

from lab.vm.lanes import running
from lab.wire import IP, UDP, Dot1Q, Ether, Raw, Wire


@pytest.fixture(scope="module")
def gateway(guest):
    """A gateway with a bridge for each pair of cards."""
    lanes = list(guest.lanes.values())
    cards = [card for lane in lanes for card in (lane.inside, lane.outside)]
    document = {
        "system": {"name": "guest", "workers": 1},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/control"},
        "interfaces": {card.name: {"device": guest.address(card)} for card in cards},
        "bridges": {lane.name: {"interfaces": [lane.inside.name, lane.outside.name]} for lane in lanes},
    }
    with running(guest, document, lanes) as gateway:
        yield gateway


def test_frames_for_anybody_cross_with_their_tags(gateway, lane):
    with Wire(lane.client, tags=True) as client, Wire(lane.server, tags=True) as server:
        for sender, receiver in [(client, server), (server, client)]:
            packet = IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=4000, dport=4001) / Raw(b"as it is, and long enough that no card pads it")
            for frame in [
                Ether(src=sender.mac, dst=receiver.mac) / packet,
                Ether(src="02:00:00:00:00:66", dst="02:00:00:00:00:77") / packet,
                Ether(src="02:00:00:00:00:66", dst="02:00:00:00:00:77") / Dot1Q(vlan=7, prio=5) / packet,
                Ether(src=sender.mac, dst="02:00:00:00:00:77", type=0x88A8) / Dot1Q(vlan=4000) / Dot1Q(vlan=8) / packet,
                # The length of the last frame is the maximum length of the link plus the length of its tag.
                Ether(src=sender.mac, dst="02:00:00:00:00:77") / Dot1Q(vlan=7) / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(dport=4001)
                / Raw(bytes(1472)),
            ]:
                sender.send(frame)
                receiver.expect(lambda seen, frame=bytes(frame): bytes(seen) == frame, timeout=30)
