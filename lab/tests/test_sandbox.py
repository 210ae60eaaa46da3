"""Tests the lab itself. All processes that it starts end with it, even if it is killed."""

import os
import signal
import subprocess
import sys

import pytest

from lab import paths, waiting

# A script that runs a topology with a program until the script is killed.
HOLD = """
import signal
import time
from lab import sandbox
# A shell starts what it puts into the background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sandbox.enter()
from lab.topology import Topology
topology = Topology()
topology.server.spawn("sleep", "{marker}")
print("up", flush=True)
# Not `signal.pause`: a signal that comes right before it would be slept through.
while True:
    time.sleep(0.2)
"""


def _processes(marker):
    """Processes that have a marker in their command line."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                if marker.encode() in file.read() and int(number) != os.getpid():
                    found.append(int(number))
        except OSError:
            pass
    return found


def _names():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, check=True).stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_lab_ended_by_a_signal_leaves_nothing(number):
    marker = f"8640{number.value}"
    before = (_names(), os.listdir("/run/lab"))
    run = subprocess.Popen(
        [sys.executable, "-B", "-c", HOLD.format(marker=marker)], cwd=paths.ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )
    assert b"up\n" == run.stdout.readline()
    assert _processes(marker)
    if number == signal.SIGINT:
        os.killpg(run.pid, number)
    else:
        run.send_signal(number)
    run.wait(10)
    waiting.until(lambda: not _processes(marker), "every process of the lab to be gone")
    run.stdout.close()
    assert before == (_names(), os.listdir("/run/lab"))


def test_lab_reports_the_status_of_what_ran_in_it():
    run = subprocess.run(
        [sys.executable, "-B", "-c", "from lab import sandbox; sandbox.enter(); raise SystemExit(7)"],
        cwd=paths.ROOT, check=False,
    )
    assert 7 == run.returncode
