"""Workers that sleep until a card has frames: cards bound by VFIO support this."""

import re

import pytest

from lab.pings import answered
from lab.vm.lanes import document, running

KINDS = ["virtio", "e1000e", "vmxnet3"]

pytestmark = pytest.mark.parametrize("guest", ["vfio"], indirect=True)

# Ticks that the threads of a process have run, and the guest's own clock.
LOOK = "for task in /proc/{}/task/*; do echo $(cat $task/comm) = $(sed 's/.*) //' $task/stat | cut -d' ' -f12,13); done; cat /proc/uptime"


def worker_ticks(guest, process):
    """Ticks of user and system time that workers have run, and seconds of the guest's clock."""
    *threads, uptime = guest.sh(LOOK.format(process.number)).splitlines()
    found = [re.fullmatch(r"worker\S* ?\S* = (\d+) (\d+)", thread) for thread in threads]
    assert any(found), threads
    return sum(int(user) + int(system) for user, system in (match.groups() for match in found if match)), float(uptime.split()[0])


def share_of_quiet_worker(guest, process):
    """The part of a core that a worker takes while nothing comes."""
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
