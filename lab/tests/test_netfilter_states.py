"""Tests TCP connections that either host closes, resets and opens again, with idle periods and forged segments.
Segments that pass Linux's connection tracking must also pass Sluice, and sessions must have the same lifetime.

`SLUICE_ORACLE_SEED` selects other connections. `SLUICE_ORACLE_SCRIPTS` is the number of connections.
"""

import os
import random

import pytest

from lab.oracle.states import Replayed, Script, Tracking, text

pytestmark = pytest.mark.sluice

SEED = os.environ.get("SLUICE_ORACLE_SEED", "1")
SCRIPTS = int(os.environ.get("SLUICE_ORACLE_SCRIPTS", "600"))


@pytest.fixture(scope="module")
def tracking():
    made = Tracking("/run/lab/states")
    yield made
    made.remove()


def test_connections_that_end_and_begin_again_are_as_in_linux(tracking, binary, tmp_path):
    scripts = [Script(random.Random(f"{SEED}.{number}"), number) for number in range(1, SCRIPTS + 1)]
    linux, sluice = tracking.passes(scripts), Replayed(binary, tmp_path).passes(scripts)
    differ = [
        text(script, {"linux": linux[number], "sluice": sluice[number]})
        for number, script in enumerate(scripts)
        if any(
            one != other
            for one, other, segment in zip(linux[number], sluice[number], script.segments)
            if not segment.forged
        )
    ]
    assert not differ, f"{len(differ)} of {len(scripts)} scripts differ\n" + "\n\n".join(differ[:3])
    # Some segments pass and some are dropped, so that the comparison is not vacuous.
    passed = [each for script in sluice for each in script]
    assert 0.02 < passed.count(False) / len(passed) < 0.5
