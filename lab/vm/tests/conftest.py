"""Fixtures: guests with cards of every kind and both binding methods, and logs of a guest after a failed test."""

import contextlib
import os
import re
import shutil

import pytest
from _pytest.runner import runtestprotocol

from lab import paths
from lab.vm import cards, image
from lab.vm.guest import Guest
from lab.vm.lanes import Lane

# These cards are in slots from which they can be removed while the guest runs.
REMOVABLE = ["virtio", "e1000e"]
# So many guests that hang are replaced in a run. The kernel of an emulated machine hangs now and then on a busy host.
REPLACED = 2
# These cards are behind one conventional PCI bridge, so that an IOMMU can't distinguish them.
SHARED = [cards.Card(f"shared-{side}", cards.KINDS["virtio"], f"52:54:00:00:ff:{last:02x}", "bridge") for side, last in (("one", 1), ("two", 2))]


def pytest_addoption(parser):
    parser.addoption("--profile", default="dev", help="cargo profile of the binary under test")
    parser.addoption("--kinds", default=",".join(cards.KINDS), help="kinds of cards to test, with commas")


def pytest_collection_modifyitems(config, items):
    """Deselect tests that a binding method does not support (legacy virtio behind an IOMMU, cases of the other
    method), and tests of kinds that are not selected."""
    chosen = config.getoption("kinds").split(",")

    def possible(item):
        parameters = getattr(item, "callspec", None) and item.callspec.params or {}
        way, lane, case = (parameters.get(name) for name in ("guest", "lane", "case"))
        return (lane is None or lane in chosen and way in cards.KINDS[lane].ways) and (case is None or way in case.ways)

    config.hook.pytest_deselected(items=[item for item in items if not possible(item)])
    items[:] = filter(possible, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Run a test, and run it once more in a new guest if its guest hangs. A test that then passes has passed, and its
    hang is listed at the end of the run. A guest that hangs can't affect the tests after this one."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    known = len(Guest.hangs)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if known < len(Guest.hangs) <= REPLACED:
        # This ends every fixture of the session, so that each is made anew.
        with contextlib.suppress(Exception):
            item.session._setupstate.teardown_exact(None)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter):
    for hang in Guest.hangs:
        terminalreporter.write_line(f"HUNG: {hang}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if not outcome.get_result().failed:
        return
    name = re.sub(r"[^\w.-]+", "_", f"{item.module.__name__}.{item.name}")
    for guest in Guest.alive:
        try:
            guest.keep(os.path.join(paths.CAPTURES, name))
        except (AssertionError, OSError) as error:
            item.add_report_section(call.when, "guest", f"the logs of {guest.name} can't be had: {error}")


@pytest.fixture(scope="session")
def binary(request):
    return paths.binary(request.config.getoption("profile"))


@pytest.fixture(scope="session")
def folder():
    path = "/run/lab/vm"
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session", params=list(cards.WAYS))
def guest(request, binary, folder):
    """A guest with a bound pair of cards of every kind that supports the binding method, and with `lanes` by name of
    the kind."""
    way = request.param
    kinds = [name for name in request.config.getoption("kinds").split(",") if way in cards.KINDS[name].ways]
    slots = {name: (f"slot-{name}-in", f"slot-{name}-out") for name in REMOVABLE}
    pairs = {name: cards.pair(name, number, slots.get(name, ("", ""))) for number, name in enumerate(kinds)}
    made = Guest(way, folder, image.build(binary), [card for pair in [*pairs.values(), SHARED] for card in pair], iommu=way == "vfio",
                 ports=[slot for pair in slots.values() for slot in pair], memory=1280, extra=["-device", "pcie-pci-bridge,id=bridge"])
    made.way, made.lanes, made.shared = way, {}, SHARED
    try:
        made.wait()
        made.hugepages(310)
        made.lanes = {name: Lane(made, name, *pair) for name, pair in pairs.items()}
        made.bind(way, *made.cards.values())
        yield made
    finally:
        made.stop()
        for lane in made.lanes.values():
            lane.remove()


@pytest.fixture(params=list(cards.KINDS))
def lane(request, guest):
    """The lane of each kind of card."""
    return guest.lanes[request.param]
