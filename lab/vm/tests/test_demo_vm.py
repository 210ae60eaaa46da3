"""Tests the demonstration with virtual machines."""

import os
import subprocess

from lab import paths


def test_demo_of_a_virtual_machine_works_from_beginning_to_end(request):
    run = subprocess.run(
        [os.path.join(paths.ROOT, "lab", "demo-vm"), "--profile", request.config.getoption("profile")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=300, check=False,
    )
    assert 0 == run.returncode, run.stdout
    assert "All of it worked, and nothing is left behind." in run.stdout
