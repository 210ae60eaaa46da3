"""Tests cards that are removed and plugged in again while the gateway runs. The other interfaces continue."""

import pytest

from lab import waiting
from lab.pings import answered, none_lost
from lab.vm.lanes import document, running

pytestmark = pytest.mark.parametrize("kind", ["virtio", "e1000e"])

# Seconds of the guest within which a daemon must end. A driver that polls the registers of a removed card takes 35 s.
QUICKLY = 15


@pytest.fixture
def lane(guest, kind):
    """The lane with the removed outside card, which is plugged in again after the test."""
    made = guest.lanes[kind]
    yield made
    if guest.hung:
        return
    try:
        guest.address(made.outside)
    except LookupError:
        guest.plug(made.outside)
        guest.bind(guest.way, made.outside)


@pytest.fixture
def bystander(guest):
    """A lane that the removal does not affect."""
    return guest.lanes["vmxnet3"]


class Pings:
    """Continuous pings of a client, all of which must be answered."""

    def __init__(self, lane):
        self.process = lane.client.spawn("ping", "-n", "-i", "0.1", "-W", "60", "198.51.100.1")

    def finish(self):
        assert none_lost(self.process) > 10


def pull(guest, gateway, lane):
    """Remove the outside card of a lane, and return when it is removed and its interface is down."""
    guest.unplug(lane.outside)
    guest.wait_unplugged(lane.outside)
    waiting.until(lambda: gateway.links()[lane.outside.name] == "down", "the interface to be down", 60)


def end(guest, gateway):
    """End the daemon, and return the elapsed time of the guest in seconds."""
    def clock():
        return float(guest.sh("cut -d' ' -f1 /proc/uptime"))

    begin = clock()
    gateway.finish()
    return clock() - begin


def test_card_that_is_pulled_is_down_until_it_is_back_and_others_go_on(guest, lane, bystander):
    lanes = [lane, bystander]
    with running(guest, document(lanes), lanes) as gateway:
        for each in lanes:
            assert answered(each.ping(), 5)
        pings = Pings(bystander)
        pull(guest, gateway, lane)
        before = sum(gateway.drops().values())
        lane.ping_unanswered(3)
        waiting.until(lambda: sum(gateway.drops().values()) >= before + 3, "what can't leave to be dropped under a name")
        guest.plug(lane.outside)
        guest.bind(guest.way, lane.outside)
        waiting.until(lambda: gateway.links()[lane.outside.name] == "up", "the interface to be up again", 60)
        waiting.until(lambda: " 1 received" in lane.ping(seconds=2, count=1, check=False), "pings to be answered again", 60)
        assert answered(lane.ping(), 5)
        pings.finish()
        assert end(guest, gateway) < QUICKLY


def test_card_that_came_after_the_start_is_taken_by_apply_and_one_that_left_does_not_hold_up_the_end(guest, lane, bystander):
    guest.unplug(lane.outside)
    guest.wait_unplugged(lane.outside)
    with running(guest, document([bystander]), [bystander, lane]) as gateway:
        pings = Pings(bystander)
        guest.plug(lane.outside)
        guest.bind(guest.way, lane.outside)
        gateway.apply(document([lane, bystander]))
        waiting.until(lambda: gateway.links().get(lane.outside.name) == "up", "the interface to be up", 60)
        waiting.until(lambda: " 1 received" in lane.ping(seconds=2, count=1, check=False), "pings to be answered", 60)
        assert answered(lane.ping(), 5)
        pull(guest, gateway, lane)
        pings.finish()
        assert end(guest, gateway) < QUICKLY
