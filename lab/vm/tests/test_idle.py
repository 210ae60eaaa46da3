"""Tests workers that sleep until a card has frames, which cards bound by VFIO support."""

import re

import pytest

from lab.pings import answered
from lab.vm.lanes import document, running

KINDS = ["virtio", "e1000e", "vmxnet3"]

pytestmark = pytest.mark.parametrize("guest", ["vfio"], indirect=True)

# A command that prints the CPU ticks of a process's threads, and the guest's clock.
LOOK = "for task in /proc/{}/task/*; do echo $(cat $task/comm) = $(sed 's/.*) //' $task/stat | cut -d' ' -f12,13); done; cat /proc/uptime"


def worker_ticks(guest, process):
    """User and system time of the workers in ticks, and the guest's clock in seconds."""
    *threads, uptime = guest.sh(LOOK.format(process.number)).splitlines()
    found = [re.fullmatch(r"worker\S* ?\S* = (\d+) (\d+)", thread) for thread in threads]
    assert any(found), threads
    return sum(int(user) + int(system) for user, system in (match.groups() for match in found if match)), float(uptime.split()[0])


def share_of_quiet_worker(guest, process):
    """CPU share of a worker while no packets arrive."""
    ticks, begin = worker_ticks(guest, process)
    guest.sh("sleep 3")
    more, end = worker_ticks(guest, process)
    return (more - ticks) / 100 / (end - begin)


def test_worker_that_waits_for_interrupts_answers_and_sleeps_meanwhile(guest):
    lanes = [guest.lanes[kind] for kind in KINDS]
    shares = {}
    for name, system in [("interrupts", {"idle": {"interrupt": True}}), ("busy-poll", {"busy-poll": True})]:
        with running(guest, document(lanes, system=system), lanes) as gateway:
            assert "no receive interrupts" not in gateway.process.output
            for lane in lanes:
                assert answered(lane.ping(), 5)
            shares[name] = share_of_quiet_worker(guest, gateway.process)
    assert shares["busy-poll"] > 0.7, shares
    assert shares["interrupts"] < 0.35 * shares["busy-poll"], shares
