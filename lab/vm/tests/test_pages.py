"""Tests the page sizes 4 KiB and 1 GiB of packet buffers. All other tests use 2 MiB."""

import hashlib

import pytest

from lab.vm import cards, image
from lab.vm.guest import Guest
from lab.vm.lanes import SERVER, Files, Lane, document, request, running

KINDS = ["virtio", "e1000e"]


def carry(lanes):
    """Transfer a file through each lane."""
    for lane in lanes:
        files = Files(lane.server)
        try:
            assert files.digest == hashlib.sha256(request(lane.client, SERVER)).hexdigest()
        finally:
            files.stop()


@pytest.mark.parametrize("guest", ["vfio"], indirect=True)
def test_ordinary_pages_carry_a_file(guest):
    lanes = [guest.lanes[kind] for kind in KINDS]
    with running(guest, document(lanes, system={"hugepages": "off"}), lanes) as gateway:
        assert "packet buffers in ordinary pages" in gateway.process.output
        carry(lanes)


@pytest.fixture(scope="module")
def large(folder, binary):
    """A guest with a single hugepage of 1 GiB."""
    pairs = {kind: cards.pair(kind, number) for number, kind in enumerate(KINDS, 1)}
    made = Guest("large", folder, image.build(binary), [card for pair in pairs.values() for card in pair], iommu=True, memory=2560,
                 cpu="Nehalem,+pdpe1gb", append="default_hugepagesz=1G hugepagesz=1G hugepages=1")
    lanes = []
    try:
        made.wait()
        lanes += [Lane(made, kind, *pair) for kind, pair in pairs.items()]
        yield made, lanes
    finally:
        made.stop()
        for lane in lanes:
            lane.remove()


@pytest.mark.parametrize("way", cards.WAYS)
def test_page_of_a_gibibyte_carries_a_file(large, way):
    guest, lanes = large
    guest.bind(way, *guest.cards.values())
    with running(guest, document(lanes, system={"hugepages": "require"}), lanes) as gateway:
        assert "packet buffers in hugepages" in gateway.process.output
        carry(lanes)
