"""Cards that are removed while the gateway runs, and return: the other interfaces continue."""

import pytest

from lab import waiting
from lab.pings import answered, none_lost
from lab.vm.lanes import document, running

pytestmark = pytest.mark.parametrize("kind", ["virtio", "e1000e"])

# Seconds of the guest in which a daemon has to end: a driver that polls the registers of a lost card takes 35.
QUICKLY = 15


@pytest.fixture
def lane(guest, kind):
    """The lane whose outer card leaves; the card is there again in the end."""
    made = guest.lanes[kind]
    yield made
    try:
        guest.address(made.outside)
    except LookupError:
        guest.plug(made.outside)
        guest.bind(guest.way, made.outside)


@pytest.fixture
def bystander(guest):
    """A lane that has nothing to do with it."""
    return guest.lanes["vmxnet3"]


class Pings:
    """Pings of a client that go on, and are all answered in the end."""

    def __init__(self, lane):
        self.process = lane.client.spawn("ping", "-n", "-i", "0.1", "-W", "60", "198.51.100.1")

    def finish(self):
        assert none_lost(self.process) > 10


def pull(guest, gateway, lane):
    """Take the outer card of a lane out; returns when it is out and its interface says so."""
    guest.unplug(lane.outside)
    guest.wait_unplugged(lane.outside)
    waiting.until(lambda: gateway.links()[lane.outside.name] == "down", "the interface to be down", 60)


def end(guest, gateway):
    """End the daemon; how many seconds of the guest that took."""
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
