"""Sends the same packets through Linux netfilter and through Sluice. The same packets must pass, with the same
translation.

`SLUICE_ORACLE_WORLDS` is the number of rule sets, with a hundred scenarios each. `SLUICE_ORACLE_SEED` selects other
rule sets and scenarios. `SLUICE_ORACLE_ONLY` repeats one scenario by the name that a failure has printed.
"""

import collections
import os
import shutil

import pytest

from lab import paths
from lab.oracle.differences import DIFFERENCES
from lab.oracle.judge import Judge, made
from lab.oracle.netfilter import Netfilter
from lab.oracle.sluice import Sluice

pytestmark = pytest.mark.sluice

SCENARIOS = 100
SEED = os.environ.get("SLUICE_ORACLE_SEED", "1")
ONLY = os.environ.get("SLUICE_ORACLE_ONLY")
WORLDS = int(os.environ.get("SLUICE_ORACLE_WORLDS", "16"))


@pytest.fixture(scope="module")
def forgiven():
    return collections.Counter()


@pytest.fixture(scope="module")
def netfilter():
    made = Netfilter("/run/lab/netfilter")
    yield made
    made.remove()


@pytest.fixture
def judge(netfilter, binary, forgiven, tmp_path):
    return Judge(netfilter, Sluice(binary, tmp_path), forgiven)


def _fail(judge, world, scenario, error):
    """Report the smallest form of a failure, and keep its files."""
    smallest, error = judge.smallest(world, scenario, error)
    folder = os.path.join(paths.CAPTURES, f"netfilter.{scenario.name}")
    shutil.copytree(judge.sluice.folder, folder, dirs_exist_ok=True)
    with open(os.path.join(folder, "rules.nft"), "w", encoding="utf-8") as file:
        file.write(world.nftables())
    lines = [f"SLUICE_ORACLE_ONLY={scenario.name} (files in {folder})", *map(str, smallest.flows), *map(str, smallest.steps)]
    pytest.fail("\n".join([*lines, str(error)]), pytrace=False)


@pytest.mark.parametrize("number", [ONLY.split(".")[1]] if ONLY else range(WORLDS))
def test_packets_pass_as_through_netfilter(judge, number):
    seed = ONLY.split(".")[0] if ONLY else SEED
    world, scenarios = made(seed, number, SCENARIOS)
    if ONLY:
        scenarios = [scenario for scenario in scenarios if scenario.name == ONLY]
    for scenario, error in judge.mismatches(world, scenarios):
        _fail(judge, world, scenario, error)


def test_every_difference_that_is_forgiven_occurs(forgiven):
    """Every accepted difference must still occur in a scenario."""
    if ONLY or WORLDS < 16:
        return
    assert set(DIFFERENCES) == set(forgiven)
