"""Namespaces that contain a whole run. When the run ends or is killed, its namespaces, processes and files are removed.

The run is the first process of a PID namespace. When this process dies, the kernel kills all processes of the
namespace. Network namespaces, their names and every file under /run are in a private mount namespace and are removed
with it.
"""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys

INSIDE = "SLUICE_LAB_INSIDE"
PR_SET_PDEATHSIG = 1
KEPT = ["PATH", "CARGO_TARGET_DIR", "SLUICE_ORACLE_WORLDS", "SLUICE_ORACLE_SEED", "SLUICE_ORACLE_ONLY", "SLUICE_ROUTE_STEPS",
        "SLUICE_ROUTE_SEED"]


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become_root():
    """Restart the program through sudo if sudo needs no password; otherwise print instructions."""
    if os.geteuid() == 0:
        return
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        os.execvp("sudo", ["sudo", "--preserve-env=" + ",".join(KEPT), sys.executable, *sys.orig_argv[1:]])
    sys.exit(f"network namespaces need root here. Run:\n    su -c '{' '.join([os.path.abspath(sys.argv[0]), *sys.argv[1:]])}'")


def shards(number):
    """Arguments with which pytest runs the given number of shards in parallel. Each shard runs one module after
    another."""
    python = shlex.quote(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shard-python"))
    return ["--dist", "loadfile", "--tx", f"{number}*popen//python={python}"]


def enter():
    """Return in a process inside the namespaces. The calling process waits outside, and ends with the same status."""
    if os.environ.pop(INSIDE, None) == str(os.getpid()):
        _furnish()
        return
    become_root()
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child=KILL", "--mount-proc"]
    child = subprocess.Popen(
        [*command, sys.executable, *sys.orig_argv[1:]],
        env={**os.environ, INSIDE: "1"},
        preexec_fn=die_with_parent,
    )
    # Ctrl-C of a terminal reaches the run directly; on SIGTERM this process kills the whole run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.kill())
    status = child.wait()
    sys.exit(status if status >= 0 else 128 - status)


def _furnish():
    """Mount a private /run with a folder for namespaces, and replace the machine's resolver with the lab's."""
    resolver = os.path.realpath("/etc/resolv.conf")
    _mount("-t", "tmpfs", "-o", "mode=755", "lab", "/run")
    os.makedirs("/run/netns")
    os.makedirs("/run/lab")
    with open("/run/lab/resolv.conf", "w", encoding="ascii") as file:
        file.write("nameserver 198.51.100.130\noptions timeout:2 attempts:2\n")
    if not os.path.exists(resolver):
        os.makedirs(os.path.dirname(resolver), exist_ok=True)
        with open(resolver, "w", encoding="ascii"):
            pass
    _mount("--bind", "/run/lab/resolv.conf", resolver)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)
