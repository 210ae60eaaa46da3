"""Tests cards that can't be opened. `sluice check` and `sluice run` report the interface, the cause, and the command
that fixes it."""

import contextlib
import re
from dataclasses import dataclass
from typing import Callable

import pytest

from lab import configuration
from lab.pings import answered
from lab.vm.cards import WAYS
from lab.vm.lanes import document, running

PATH = "/run/lab/wrong.toml"


@contextlib.contextmanager
def given(guest, card, driver):
    """Context in which a card is bound to a kernel driver, or to no driver."""
    guest.give(driver, card)
    try:
        yield
    finally:
        guest.bind(guest.way, card)


@contextlib.contextmanager
def driven_by_the_kernel(guest, card):
    with given(guest, card, card.kind.kernel_driver):
        assert card.kind.kernel_driver == guest.driver(card)
        yield


@contextlib.contextmanager
def without_driver(guest, card):
    with given(guest, card, ""):
        assert "" == guest.driver(card)
        yield


@contextlib.contextmanager
def offered_to_vfio_without_an_iommu(guest, card):
    with given(guest, card, "vfio-pci"):
        yield


@contextlib.contextmanager
def without_type1(guest, card):
    guest.sh("rmmod vfio_iommu_type1", check=True)
    try:
        yield
    finally:
        guest.sh("modprobe vfio_iommu_type1", check=True)


@contextlib.contextmanager
def shared_group(guest, card):
    other = guest.shared[1]
    with given(guest, other, other.kind.kernel_driver):
        yield


@contextlib.contextmanager
def hugepages_taken(guest, card):
    taken = "/dev/hugepages/taken"
    guest.sh(f"fallocate -l $(( $(awk '/HugePages_Free/ {{ print $2 }}' /proc/meminfo) * 2 ))M {taken}", check=True)
    try:
        yield
    finally:
        guest.sh(f"rm {taken}", check=True)


@contextlib.contextmanager
def in_use(guest, card):
    """Context in which another daemon with another control socket uses the card."""
    other = {
        "system": {"name": "other"},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/other"},
        "interfaces": {"first": {"device": guest.address(card), "addresses": ["192.0.2.1/24"]}},
    }
    with running(guest, other):
        yield


@contextlib.contextmanager
def as_it_is(guest, card):
    yield


@dataclass(frozen=True)
class Case:
    """A fault, and words that the report of the fault must contain."""

    name: str
    ways: tuple
    prepare: Callable
    words: tuple
    # The faulty card, and additional settings of the configuration.
    card: Callable = lambda guest: guest.lanes["vmxnet3"].inside
    system: tuple = ()
    # Text of the configuration file that the report of the fault quotes.
    place: str = "uplink"


EITHER = tuple(WAYS)
CASES = [
    Case("kernel-driver", EITHER, driven_by_the_kernel, ("kernel driver vmxnet3", "sluice bind {address}", "{driver}")),
    Case("no-driver", EITHER, without_driver, ("no driver", "sluice bind {address}", "{driver}")),
    Case("vfio-without-iommu", ("uio",), offered_to_vfio_without_an_iommu, ("no driver", "{driver}")),
    Case("type1-not-loaded", ("vfio",), without_type1, ("modprobe vfio_iommu_type1",)),
    Case("group-shared", ("vfio",), shared_group, ("IOMMU group", "kernel driver virtio-pci", "sluice bind {other}"),
         lambda guest: guest.shared[0]),
    Case("in-use", EITHER, in_use, ("in use", "process")),
    Case("hugepages-off", ("uio",), as_it_is, ("UIO", "hugepages"), system=(("hugepages", "off"),)),
    Case("hugepages-taken", ("uio",), hugepages_taken, ("UIO", "hugepages", "nr_hugepages")),
    Case("hugepages-demanded", ("vfio",), hugepages_taken, ("hugepages", "nr_hugepages"), system=(("hugepages", "require"),), place="require"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_card_that_can_not_be_opened_is_named_with_the_cause_and_the_remedy(guest, case):
    card = case.card(guest)
    known = {"address": guest.address(card), "other": guest.address(guest.shared[1]), "driver": WAYS[guest.way]}
    wrong = {
        "system": {"name": "wrong", **dict(case.system)},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/wrong"},
        "interfaces": {"uplink": {"device": known["address"], "addresses": ["192.0.2.1/24"]}},
    }
    guest.put(PATH, configuration.text(wrong))
    with case.prepare(guest, card):
        for command in (f"sluice check {PATH}", f"timeout 60 sluice run -c {PATH}"):
            output, status = guest.call(command)
            # Remove colours, frames and line ends from the output.
            text = " ".join(re.sub(r"\x1b\[[0-9;]*m|│", " ", output).split())
            # The exit statuses 124 and 143 mean that the gateway was running and had to be terminated.
            assert status not in (0, 124, 143), f"{command}: {output}"
            for word in (case.place, *case.words):
                assert word.format(**known) in text, f"{command}: {output}"
            assert "panicked" not in output


def test_card_that_was_given_back_and_forth_carries_packets(guest):
    lane = guest.lanes["vmxnet3"]
    with running(guest, document([lane]), [lane]):
        assert answered(lane.ping(), 5)
