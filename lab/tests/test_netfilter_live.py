"""Sends the same packets through nftables and through Sluice's daemon. Before and after a commit the same packets must
pass, and the counters of each rule must be equal.

In stateful mode, the counters are not compared: a rule of Sluice counts first packets, and a rule of nftables counts
all packets until the first answer. Linux evaluates rules for established connections only if the rules match this
state. Replacement rules match this state, and evaluate the first packet of a connection.

`SLUICE_ORACLE_WORLDS`, `SLUICE_ORACLE_SEED` and `SLUICE_ORACLE_ONLY` have the same meaning as in `test_netfilter`, with
twenty scenarios per rule set.
"""

import collections
import os

import pytest

from lab.oracle.filtered import made_to_count, made_to_follow
from lab.oracle.judge import Judge
from lab.oracle.live import Live
from lab.oracle.netfilter import Netfilter

pytestmark = pytest.mark.sluice

SCENARIOS = 20
SEED = os.environ.get("SLUICE_ORACLE_SEED", "1")
ONLY = os.environ.get("SLUICE_ORACLE_ONLY")
WORLDS = int(os.environ.get("SLUICE_ORACLE_WORLDS", "8"))


@pytest.fixture(scope="module")
def linux():
    made = {six: Netfilter("/run/lab/live", f"counting{6 * six or ''}", six) for six in (False, True)}
    yield made
    for gateway in made.values():
        gateway.remove()


@pytest.fixture(scope="module")
def tracking():
    made = {six: Netfilter("/run/lab/live", f"following{6 * six or ''}", six) for six in (False, True)}
    yield made
    for gateway in made.values():
        gateway.remove()


@pytest.fixture(scope="module")
def forgiven():
    return collections.Counter()


@pytest.fixture(scope="module")
def sluice(binary):
    made = Live("/run/lab/live", binary)
    yield made
    made.remove()


def _made(number):
    worlds, scenarios = made_to_count(ONLY.split(".")[0] if ONLY else SEED, number, SCENARIOS)
    return worlds, [scenario for scenario in scenarios if ONLY in (None, scenario.name)]


def _none(found):
    """Fail if there are differences, and report them."""
    if found:
        lines = [f"SLUICE_ORACLE_ONLY={scenario.name}\n{scenario.flows}\n{error}" for scenario, error in found]
        pytest.fail("\n".join(lines), pytrace=False)


def _by_content(world):
    """Names of rules by action and match. Rules with equal action and match are omitted."""
    names = {}
    for rule in world.filter.document(world.six)["rules"]:
        name = rule.pop("name")
        names.setdefault(str(rule), []).append(name)
    return {content: name for content, (name, *others) in names.items() if not others} | {"": "default"}


@pytest.mark.parametrize("number", [ONLY.split(".")[1]] if ONLY else range(WORLDS))
def test_rules_count_what_those_of_nftables_count(linux, sluice, number):
    (world, _), scenarios = _made(number)
    judge = Judge(linux[world.six], sluice, collections.Counter())
    _none(judge.mismatches(world, scenarios))
    assert linux[world.six].counts == sluice.counts


@pytest.mark.parametrize("number", [ONLY.split(".")[1]] if ONLY else range(WORLDS))
def test_commit_between_packets_is_one_of_nftables(linux, sluice, number):
    worlds, scenarios = _made(number)
    judge = Judge(linux[worlds[0].six], sluice, collections.Counter())
    _none(judge.changed(worlds, scenarios))
    assert linux[worlds[0].six].counts == sluice.counts
    # Unchanged rules keep their counters.
    old, new = map(_by_content, worlds)
    first, second = sluice.carried[-2:]
    carried = {content: _difference(second[new[content]], first[old[content]]) for content in set(old) & set(new)}
    assert {content: sluice.counts[0][old[content]] for content in carried} == carried


@pytest.mark.parametrize("number", [ONLY.split(".")[1]] if ONLY else range(WORLDS))
def test_sessions_are_asked_about_again_after_a_commit(tracking, sluice, forgiven, number):
    worlds, scenarios = made_to_follow(ONLY.split(".")[0] if ONLY else SEED, number, SCENARIOS)
    scenarios = [scenario for scenario in scenarios if ONLY in (None, scenario.name)]
    judge = Judge(tracking[worlds[0].six], sluice, forgiven)
    _none(judge.changed(worlds, scenarios))


def _difference(now, before):
    return tuple(one - other for one, other in zip(now, before))
