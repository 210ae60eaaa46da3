"""Sends the same IPv4 and IPv6 packets through a packet filter of nftables and through Sluice's packet filter. The same
packets must pass, with the same errors.

`SLUICE_ORACLE_WORLDS`, `SLUICE_ORACLE_SEED` and `SLUICE_ORACLE_ONLY` have the same meaning as in `test_netfilter`, with
thirty scenarios per rule set.
"""

import collections
import os
import shutil

import pytest

from lab import paths
from lab.oracle.differences import FILTER_DIFFERENCES
from lab.oracle.filtered import made
from lab.oracle.judge import Judge
from lab.oracle.netfilter import MARKER_PASSES, Netfilter
from lab.oracle.sluice import Sluice

pytestmark = pytest.mark.sluice

SCENARIOS = 30
SEED = os.environ.get("SLUICE_ORACLE_SEED", "1")
ONLY = os.environ.get("SLUICE_ORACLE_ONLY")
WORLDS = int(os.environ.get("SLUICE_ORACLE_WORLDS", "21"))


@pytest.fixture(scope="module")
def forgiven():
    return collections.Counter()


@pytest.fixture(scope="module")
def gateways():
    """For each family, a gateway that tracks connections, and a gateway in a namespace that has never tracked
    connections."""
    names = {(True, False): "tracking", (False, False): "stateless", (True, True): "tracking6", (False, True): "stateless6"}
    made = {(tracks, six): Netfilter("/run/lab/filter", name, six) for (tracks, six), name in names.items()}
    yield made
    for gateway in made.values():
        gateway.remove()


def _fail(judge, world, scenario, error):
    """Report the smallest form of a failure, and keep its files."""
    smallest, error = judge.smallest(world, scenario, error)
    folder = os.path.join(paths.CAPTURES, f"filter.{scenario.name}")
    shutil.copytree(judge.sluice.folder, folder, dirs_exist_ok=True)
    with open(os.path.join(folder, "rules.nft"), "w", encoding="utf-8") as file:
        file.write(world.nftables([] if world.six else [MARKER_PASSES]))
    lines = [f"SLUICE_ORACLE_ONLY={scenario.name} (files in {folder})", *map(str, smallest.flows), *map(str, smallest.steps)]
    pytest.fail("\n".join([*lines, str(error)]), pytrace=False)


@pytest.mark.parametrize("number", [ONLY.split(".")[1]] if ONLY else range(WORLDS))
def test_packets_pass_the_filter_as_through_nftables(gateways, binary, forgiven, tmp_path, number):
    seed = ONLY.split(".")[0] if ONLY else SEED
    world, scenarios = made(seed, number, SCENARIOS)
    if ONLY:
        scenarios = [scenario for scenario in scenarios if scenario.name == ONLY]
    judge = Judge(gateways[world.tracks, world.six], Sluice(binary, tmp_path), forgiven)
    for scenario, error in judge.mismatches(world, scenarios):
        _fail(judge, world, scenario, error)


def test_every_difference_of_filters_that_is_forgiven_occurs(forgiven):
    """Every accepted difference must still occur in a scenario of a long run."""
    if ONLY or WORLDS < 200:
        return
    assert set() == set(FILTER_DIFFERENCES) - set(forgiven)
