"""Fixtures: the topology, its gateway, and captures of failed tests."""

import os
import re
import shutil

import pytest

from lab import configuration, paths
from lab.capture import Captures
from lab.gateway import Linux, Sluice
from lab.services import Services
from lab.topology import Topology


def pytest_addoption(parser):
    parser.addoption("--gateway", choices=["sluice", "linux"], default="sluice", help="what forwards")
    parser.addoption("--profile", default="dev", help="cargo profile of the binary under test")


def pytest_configure(config):
    config.addinivalue_line("markers", "sluice: asks for what only Sluice has; not run with --gateway linux")


def pytest_collection_modifyitems(config, items):
    if config.getoption("gateway") == "linux":
        chosen = [item for item in items if item.get_closest_marker("sluice") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.failed_once = True


@pytest.fixture(scope="session")
def binary(request):
    return paths.binary(request.config.getoption("profile"))


@pytest.fixture(scope="module")
def topology():
    made = Topology()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    return Services(topology.server)


@pytest.fixture(scope="module")
def document():
    """The configuration of a module's gateway. A module can override this fixture."""
    return configuration.standard()


@pytest.fixture(scope="module")
def gateway(request, topology, document):
    if request.config.getoption("gateway") == "linux":
        made = Linux(topology.gateway)
    else:
        made = Sluice(topology.gateway, request.getfixturevalue("binary"), document)
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def captures(request):
    """Captures of all links, kept in target/lab-captures/TEST if the test fails."""
    if "topology" not in request.fixturenames:
        yield
        return
    topology = request.getfixturevalue("topology")
    name = re.sub(r"[^\w.-]+", "_", f"{request.module.__name__.split('.')[-1]}.{request.node.name}")
    made = Captures(topology, os.path.join(paths.CAPTURES, name))
    yield
    logs = [process.log for host in topology.hosts for process in host.processes if "tcpdump" not in process.log]
    made.finish(getattr(request.node, "failed_once", False), logs)


@pytest.fixture
def folder(topology, request):
    """An empty folder for a test's files."""
    path = os.path.join(topology.folder, re.sub(r"\W+", "_", request.node.name))
    os.makedirs(path, exist_ok=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)
