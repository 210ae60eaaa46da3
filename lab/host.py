"""A host of the lab: one network namespace."""

import contextlib
import ctypes
import os
import re
import socket
import subprocess

from lab import waiting
from lab.process import Process

CLONE_NEWNET = 0x40000000
OFFLOADS = ["rx", "tx", "sg", "tso", "gso", "gro", "rxvlan", "txvlan"]

_libc = ctypes.CDLL(None, use_errno=True)


def _set_network(descriptor):
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Host:
    """A network namespace with a name, its programs and its sockets."""

    def __init__(self, name, folder, make=True):
        self.name = name
        self.folder = folder
        self.processes = []
        if not make:
            return
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.run("ip", "link", "set", "lo", "up")
        # Addresses are usable immediately, and the host sends only packets that a test requests.
        for setting in ["dad_transmits=0", "accept_ra=0", "router_solicitations=0"]:
            self.setting("net.ipv6.conf.default." + setting)

    def run(self, *command, check=True, timeout=60, **options):
        """Run a program to its end and return its output. The error of a failed program contains its whole output."""
        command = [str(word) for word in command]
        result = subprocess.run(
            ["ip", "netns", "exec", self.name, *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=timeout,
            encoding="utf-8", errors="replace", check=False, **options,
        )
        if check and result.returncode != 0:
            raise AssertionError(f"{self.name}: {' '.join(command)} ended with {result.returncode}:\n{result.stdout}")
        return result.stdout

    def spawn(self, *command, label=None, names=False):
        """Start a program that runs in parallel with the test until the host is removed. With `names`, the program
        may create named namespaces for all programs."""
        command = [str(word) for word in command]
        log = os.path.join(self.folder, f"{self.name}-{label or os.path.basename(command[0])}-{len(self.processes)}.log")
        # Programs started by `ip netns exec` have a separate mount namespace.
        enter = ["nsenter", f"--net=/run/netns/{self.name}"] if names else ["ip", "netns", "exec", self.name]
        process = Process([*enter, *command], log)
        self.processes.append(process)
        return process

    @property
    def files(self):
        """The folder for the host's files."""
        return self.folder

    def put(self, path, text):
        """Write a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def setting(self, text):
        """Set a kernel setting (`net.ipv4.ip_forward=1`) in this namespace."""
        self.run("sysctl", "-q", "-w", text)

    @contextlib.contextmanager
    def network(self):
        """Context in which new sockets are created in this host's namespace."""
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        try:
            _set_network(there)
            try:
                yield
            finally:
                _set_network(here)
        finally:
            os.close(here)
            os.close(there)

    def open_socket(self, family=socket.AF_INET, kind=socket.SOCK_DGRAM, timeout=5.0, protocol=0):
        """A socket of this host with a timeout of `timeout` seconds."""
        with self.network():
            made = socket.socket(family, kind, protocol)
        made.settimeout(timeout)
        return made

    def listener(self, port, family=socket.AF_INET):
        """A listening TCP socket of this host."""
        made = self.open_socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("", port))
        made.listen(16)
        return made

    def mac(self, interface="eth0"):
        """The hardware address of an interface."""
        return re.search(r"link/ether (\S+)", self.run("ip", "link", "show", "dev", interface)).group(1)

    def mac_of(self, neighbour):
        """The hardware address of a neighbour, resolved if necessary."""
        self.run("ping", "-n", "-c", "1", "-W", "5", neighbour)
        return re.search(r"lladdr (\S+)", self.run("ip", "neighbour", "show", neighbour)).group(1)

    def wait_listening(self, port, protocol="tcp"):
        """Wait until a program of this host listens on a port."""
        flags = "-Hltn" if protocol == "tcp" else "-Hlun"
        waiting.until(
            lambda: self.run("ss", flags, f"sport = :{port}").strip(), f"{self.name} to listen on {protocol} {port}"
        )

    def remove(self):
        """End the host's programs and its namespace."""
        for process in self.processes:
            process.stop()
        subprocess.run(["ip", "netns", "delete", self.name], check=True)


def connect(left, left_interface, right, right_interface, mtu=1500):
    """Create a veth pair between two hosts, set it up, and disable the simulated offloads of veth."""
    subprocess.run(
        ["ip", "link", "add", left_interface, "netns", left.name, "mtu", str(mtu), "type", "veth",
         "peer", "name", right_interface, "netns", right.name, "mtu", str(mtu)], check=True,
    )
    for host, interface in [(left, left_interface), (right, right_interface)]:
        off = [word for offload in OFFLOADS for word in (offload, "off")]
        host.run("ethtool", "-K", interface, *off)
        host.run("ip", "link", "set", interface, "up")
    for host, interface in [(left, left_interface), (right, right_interface)]:
        waiting.until(
            lambda host=host, interface=interface: "LOWER_UP" in host.run("ip", "link", "show", "dev", interface),
            f"carrier on {interface} of {host.name}",
        )
