"""Tests two cards of a guest that are aggregated with LACP and connected to a second Sluice on the host."""

import hashlib
import os

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.host import Host, connect
from lab.pings import answered
from lab.vm.lanes import Files, request, running

SERVER = "192.0.2.130"
MEMBERS = ["left", "right"]


@pytest.fixture(scope="module")
def peer(guest, folder, binary):
    """The host at the other end of the bond, with the taps of both e1000e cards and a server behind it."""
    path = os.path.join(folder, f"bond-{guest.way}")
    os.makedirs(path)
    host, server = Host("peer", path), Host("peer-server", path)
    host.setting("net.ipv6.conf.default.disable_ipv6=1")
    lane = guest.lanes["e1000e"]
    for card, name, owner in zip((lane.inside, lane.outside), MEMBERS, (lane.client, lane.server)):
        owner.run("ip", "link", "set", "eth0", "name", card.wire, "netns", "1")
        guest.attach(card, host, name)
    connect(host, "lan", server, "eth0")
    server.run("ip", "address", "add", f"{SERVER}/25", "dev", "eth0")
    server.run("ip", "route", "add", "default", "via", "192.0.2.129")
    made = Sluice(host, binary, {
        "system": {"name": "peer", "workers": 1},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/peer-control", "log": "debug"},
        "interfaces": {
            "trunk": {"bond": {"members": MEMBERS}, "addresses": ["192.0.2.1/25"]},
            "lan": {"device": "lan", "addresses": ["192.0.2.129/25"]},
        },
        "routes": [{"to": "10.0.0.0/24", "via": "192.0.2.2"}],
    })
    made.start()
    yield made, server
    made.stop()
    for card, name in zip((lane.inside, lane.outside), MEMBERS):
        host.run("ip", "link", "set", name, "name", card.wire, "netns", "1")
    host.remove()
    server.remove()
    lane.attach()


@pytest.fixture(scope="module")
def gateway(guest, peer):
    lane, client = guest.lanes["e1000e"], guest.lanes["vmxnet3"]
    document = {
        "system": {"name": "guest", "workers": 1},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {
            client.inside.name: {"device": guest.address(client.inside), "addresses": ["10.0.0.1/24"]},
            "trunk": {"bond": {"members": [guest.address(card) for card in (lane.inside, lane.outside)]}, "addresses": ["192.0.2.2/25"]},
        },
        "routes": [{"to": "0.0.0.0/0", "via": "192.0.2.1"}],
    }
    with running(guest, document, [client]) as made:
        made.client = client
        yield made


def test_bond_carries_a_file_and_goes_on_when_either_member_loses_its_link(guest, peer, gateway):
    other, server = peer
    lane, client = guest.lanes["e1000e"], gateway.client
    waiting.until(lambda: "1 received" in client.ping(seconds=1, address=SERVER, count=1, check=False), "LACP to agree on the bond", 90)
    files = Files(server)

    def carries(what):
        waiting.until(lambda: answered(client.ping(seconds=2, address=SERVER, check=False), 5), f"pings to go on {what}", 90)
        assert files.digest == hashlib.sha256(request(client.client, SERVER)).hexdigest()
        assert "up" == gateway.links()["trunk"]

    def connect(card, member, up):
        guest.set_link(card, up)
        other.host.run("ip", "link", "set", member, "up" if up else "down")

    try:
        carries("over both members")
        # The addresses of the pings determine which of the two links carries them.
        for card, member in zip((lane.inside, lane.outside), MEMBERS):
            connect(card, member, False)
            carries(f"without {member}")
            connect(card, member, True)
            other.process.wait_for_line(f"the member {member} is back", 90)
    finally:
        files.stop()
        for card, member in zip((lane.inside, lane.outside), MEMBERS):
            connect(card, member, True)
