"""A short soak test, with random traffic in parallel with a real client."""

import os
import subprocess

from lab import paths


def test_soak_of_random_traffic_balances_and_disturbs_nobody(request):
    options = ["--gateway", request.config.getoption("gateway"), "--profile", request.config.getoption("profile")]
    run = subprocess.run(
        [os.path.join(paths.ROOT, "lab", "soak"), *options, "--seconds", "8", "--seed", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=180, check=False,
    )
    assert 0 == run.returncode, run.stdout
    assert run.stdout.endswith("1 passed, 0 failed\n")
