"""Tests the demonstration with a short run."""

import os
import subprocess

import pytest

from lab import paths


def test_demo_works_from_beginning_to_end(request):
    options = ["--gateway", request.config.getoption("gateway"), "--profile", request.config.getoption("profile")]
    before = os.listdir("/run/lab")
    run = subprocess.run(
        [os.path.join(paths.ROOT, "lab", "demo"), *options, "--seconds", "1", "--megabytes", "4"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=120, check=False,
    )
    assert 0 == run.returncode, run.stdout
    assert "All of it worked, and nothing is left behind." in run.stdout
    assert before == os.listdir("/run/lab")


@pytest.mark.sluice
def test_demo_of_inspection_works_from_beginning_to_end(request):
    before = os.listdir("/run/lab")
    run = subprocess.run(
        [os.path.join(paths.ROOT, "lab", "demo-inspect"), "--profile", request.config.getoption("profile"),
         "--seconds", "2", "--megabytes", "4"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=120, check=False,
    )
    assert 0 == run.returncode, run.stdout
    assert "All of it worked, and nothing is left behind." in run.stdout
    assert before == os.listdir("/run/lab")


@pytest.mark.sluice
def test_demo_of_subscribers_works_from_beginning_to_end(request):
    before = os.listdir("/run/lab")
    run = subprocess.run(
        [os.path.join(paths.ROOT, "lab", "demo-subscribers"), "--profile", request.config.getoption("profile")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=300, check=False,
    )
    assert 0 == run.returncode, run.stdout
    assert "All of it worked, and nothing is left behind." in run.stdout
    assert before == os.listdir("/run/lab")


@pytest.mark.sluice
def test_demo_of_virtual_routers_works_from_beginning_to_end(request):
    before = os.listdir("/run/lab")
    run = subprocess.run(
        [os.path.join(paths.ROOT, "lab", "demo-routers"), "--profile", request.config.getoption("profile")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=300, check=False,
    )
    assert 0 == run.returncode, run.stdout
    assert "All of it worked, and nothing is left behind." in run.stdout
    assert before == os.listdir("/run/lab")
