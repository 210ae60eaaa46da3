"""A running VPP with packet generator interfaces, its commands and its counters."""

import glob
import os
import re
import subprocess
import time

from lab import waiting
from lab.process import Process
from lab.vpp.fault import Fault

FREE_HUGE_PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
BUFFERS = 16384
BUFFERS_MIB = 64
# Interval of the checks for the end of a stream.
INTERVAL = 0.05

CONFIGURATION = """\
unix {{ nodaemon nobanner cli-listen {folder}/cli.sock runtime-dir {folder} log {folder}/vpp.log cli-no-pager }}
api-segment {{ prefix {prefix} }}
socksvr {{ socket-name {folder}/api.sock }}
statseg {{ socket-name {folder}/stats.sock size 64M }}
cpu {{ main-core {core} }}
memory {{ main-heap-size {heap}M main-heap-page-size {page} }}
buffers {{ buffers-per-numa {buffers} page-size {page} }}
plugins {{ path {plugins} plugin default {{ disable }} plugin nat_plugin.so {{ enable }} }}
"""


class Build:
    """The programs and libraries in a build directory of VPP."""

    def __init__(self, directory):
        directory = os.path.abspath(directory)
        self.vpp = self._found(directory, "bin/vpp")
        self.vppctl = self._found(directory, "bin/vppctl")
        self.plugins = os.path.dirname(self._found(directory, "lib/*/vpp_plugins/nat_plugin.so"))
        self.libraries = os.path.dirname(self.plugins)

    @staticmethod
    def _found(directory, name):
        """The path of a file in the build directory."""
        paths = glob.glob(os.path.join(glob.escape(directory), name))
        if not paths:
            raise Fault(f"no {name}", directory, "--vpp is a build directory of VPP; `measure-vpp --help` says how to build it")
        return paths[0]


class Instance:
    """VPP on one core. As a context manager, it stops VPP at the end."""

    def __init__(self, build, core, sessions, folder):
        self.build = build
        self.folder = folder
        heap = 768 + sessions * 3 // 4096
        self.page = "2 MiB" if _free_huge_pages() * 2 >= heap + BUFFERS_MIB else "4 KiB"
        self.prefix = f"measure-vpp-{os.getpid()}"
        configuration = os.path.join(folder, "startup.conf")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(
                folder=folder, prefix=self.prefix, core=core, heap=heap, buffers=BUFFERS, plugins=build.plugins,
                page="2m" if self.page == "2 MiB" else "4k",
            ))
        # VPP also ends if this program is killed.
        self.process = Process(
            ["setpriv", "--pdeathsig", "TERM", "taskset", "--cpu-list", str(core),
             "env", f"LD_LIBRARY_PATH={build.libraries}", build.vpp, "-c", configuration],
            os.path.join(folder, "output"),
        )

    def __enter__(self):
        try:
            version = waiting.until(self._version, "the command socket of VPP", 60)
            self.version = version.split()[1]
            # Cycles per second of the time-stamp counter with which VPP measures its nodes.
            self.frequency = float(self._search(r"clocks/sec ([\d.]+)", "show clock verbose"))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Stop VPP, and remove its shared memory, which a killed VPP leaves behind."""
        self.process.stop()
        for path in glob.glob(f"/dev/shm/{self.prefix}-*"):
            os.remove(path)

    def _version(self):
        """The answer to `show version`, or nothing while VPP starts."""
        self._check_running()
        answer = self._answer("show version")
        return answer if answer.startswith("vpp v") else None

    def _check_running(self):
        """Raise a fault with the last output if VPP has ended."""
        if not self.process.running:
            output = self.process.output.strip()[-1000:]
            raise Fault(f"VPP ended with status {self.process.popen.returncode}", f"{self.build.vpp}: {output}",
                        "check free memory, free huge pages and the permission to use them")

    def _answer(self, command):
        """The output of a command."""
        answer = subprocess.run(
            [self.build.vppctl, "-s", os.path.join(self.folder, "cli.sock"), command], check=False, text=True,
            env={**os.environ, "LD_LIBRARY_PATH": self.build.libraries},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        return answer.stdout.replace("\r", "")

    def _search(self, pattern, command):
        """The first group of a pattern in the output of a command."""
        answer = self.show(command)
        match = re.search(pattern, answer, re.MULTILINE | re.DOTALL)
        if match is None:
            raise Fault(f"no match of /{pattern}/", f"{command}: {answer.strip()}", "VPP 26.06 is known to work")
        return match.group(1)

    def show(self, command):
        """The output of a `show` command."""
        self._check_running()
        return self._answer(command)

    def configure(self, *commands):
        """Execute commands that change the configuration."""
        for command in commands:
            answer = self.show(command)
            if re.search(r"unknown|error|failed|expected|can.t", answer):
                raise Fault("VPP rejects a command", f"{command}: {answer.strip()}", "VPP 26.06 is known to work")

    def mac(self, interface):
        """The MAC address of an interface."""
        address = self._search(rf"^{interface}\b.*?Ethernet address (\S+)", "show hardware-interfaces")
        return bytes.fromhex(address.replace(":", ""))

    def summary(self, name):
        """A number of the summary of NAT44-ED."""
        return int(self._search(rf"{name}: (\d+)", "show nat44 summary"))

    def run_stream(self, name, seconds=INTERVAL):
        """Run a stream until its end, and return its duration. Commands are sent only after the expected duration."""
        started = time.monotonic()
        self.configure(f"packet-generator enable-stream {name}")
        time.sleep(seconds)
        while self._search(rf"^\s*{name}\s+(\S+)", "show packet-generator") != "No":
            time.sleep(INTERVAL)
        return time.monotonic() - started

    def clear_counters(self):
        """Reset the counters of nodes, interfaces and errors."""
        self.configure("clear runtime", "clear interfaces", "clear errors")

    def nodes(self):
        """Packets and cycles of each node since the last reset."""
        nodes = {}
        for line in self.show("show runtime").splitlines():
            row = re.match(r"(\S+)\s+[a-z ]+?\s+\d+\s+(\d+)\s+\d+\s+(\S+)\s+\S+\s*$", line)
            if row:
                nodes[row.group(1)] = (int(row.group(2)), int(row.group(2)) * float(row.group(3)))
        return nodes

    def interface_counters(self):
        """The counters by interface and name, for example ("pg0", "tx packets")."""
        counters = {}
        interface = None
        for line in self.show("show interface").splitlines():
            row = re.match(r"(\S+)\s+\d+\s+(?:up|down)\s+\S+\s*(.*)", line)
            if row:
                interface, line = row.groups()
            counter = re.match(r"\s*(\S.*?)\s+(\d+)\s*$", line)
            if counter and interface:
                counters[interface, counter.group(1)] = int(counter.group(2))
        return counters

    def waited(self):
        """Nanoseconds for which the thread of VPP has waited for the processor."""
        process = self.process.popen.pid
        with open(f"/proc/{process}/task/{process}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])


def _free_huge_pages():
    """Number of free pages of 2 MiB."""
    try:
        with open(FREE_HUGE_PAGES, encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return 0
