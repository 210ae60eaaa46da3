"""The gateway between inside and outside: Sluice, or Linux's own forwarding for comparison."""

import json
import os
import signal

from lab import configuration, waiting
from lab.topology import FORWARDED, POOL


class Linux:
    """Linux forwarding and iptables instead of Sluice, to verify the expectations of a test."""

    kind = "linux"
    ADDRESSES = {
        "inside1": ["192.168.1.1/24", "2001:db8:1::1/64"],
        "inside2": ["192.168.2.1/24", "2001:db8:2::1/64"],
        "outside": ["198.51.100.2/25", "2001:db8:a::2/64"],
    }

    def __init__(self, host):
        self.host = host

    def start(self):
        host = self.host
        for setting in [
            "net.ipv6.conf.all.disable_ipv6=0", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
            "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0",
        ]:
            host.setting(setting)
        for interface, addresses in self.ADDRESSES.items():
            host.setting(f"net.ipv6.conf.{interface}.disable_ipv6=0")
            for address in addresses:
                nodad = ["nodad"] if ":" in address else []
                host.run("ip", "address", "add", address, "dev", interface, *nodad)
        for neighbour in ["192.168.1.2", "2001:db8:1::2", "2001:db8:2::2", "2001:db8:a::1"]:
            waiting.until(
                lambda neighbour=neighbour: "1 received" in host.run("ping", "-c1", "-W1", neighbour, check=False),
                f"{neighbour} to answer Linux",
            )
        host.run("ip", "route", "add", "default", "via", "198.51.100.1")
        host.run("ip", "-6", "route", "add", "default", "via", "2001:db8:a::1")
        host.run("ip", "route", "add", "blackhole", "203.0.113.0/24")
        nat = ["iptables", "-w", "-t", "nat"]
        host.run(*nat, "-A", "POSTROUTING", "-s", "192.168.0.0/16", "-o", "outside",
                 "-j", "SNAT", "--to-source", f"{POOL[0]}-{POOL[-1]}")
        host.run(*nat, "-A", "PREROUTING", "-d", FORWARDED, "-p", "tcp", "--dport", "8080",
                 "-j", "DNAT", "--to-destination", "192.168.1.2:80")
        host.run(*nat, "-A", "PREROUTING", "-d", FORWARDED, "-p", "udp", "--dport", "5353",
                 "-j", "DNAT", "--to-destination", "192.168.1.2")

    def stop(self):
        host = self.host
        host.run("iptables", "-w", "-t", "nat", "-F")
        for interface in self.ADDRESSES:
            host.run("ip", "address", "flush", "dev", interface)
        host.setting("net.ipv4.ip_forward=0")


class Sluice:
    """The daemon `sluice run` in the gateway's namespace, and its command line."""

    kind = "sluice"

    def __init__(self, host, binary, document=None, names=False):
        self.host = host
        self.names = names
        self.binary = binary
        self.document = document or configuration.standard()
        self.process = None

    def write(self, document=None, name="sluice.toml"):
        """Write a configuration file, and return its path."""
        path = os.path.join(self.host.files, name)
        if not isinstance(document, str):
            document = configuration.text(self.prepared(document or self.document))
        self.host.put(path, document)
        return path

    @staticmethod
    def prepared(document):
        """The configuration that the gateway gets from a test's document."""
        return configuration.beside_others(document)

    def start(self):
        """Start the daemon, and return when it forwards packets."""
        self.process = self.host.spawn(self.binary, "run", "-c", self.write(), label="sluice", names=self.names)

        def serves():
            if not self.process.running:
                raise AssertionError(f"sluice ended with {self.process.wait()}:\n{self.process.output}")
            return self._answer("show", "interfaces")

        waiting.until(serves, "sluice to serve its control socket", 30)

    def stop(self):
        """Terminate the daemon, and return its output."""
        self.process.signal(signal.SIGTERM)
        status = self.process.wait(15)
        assert 0 == status, f"sluice ended with {status}:\n{self.process.output}"
        return self.process.output

    def command(self, *words, check=True, timeout=30):
        """Run a command of the command line on the daemon, and return its output."""
        words = [str(word) for word in words]
        socket = ["--socket", self.document["control"]["socket"]]
        return self.host.run(self.binary, *words, *socket, check=check, timeout=timeout)

    def _answer(self, *words):
        output = self.command(*words, "--json", check=False)
        try:
            return json.loads(output)
        except json.JSONDecodeError as error:
            raise LookupError(output) from error

    def show(self, what, *filters):
        """The parsed output of `sluice show WHAT --json`."""
        return json.loads(self.command("show", what, *filters, "--json"))

    def apply(self, document):
        """Apply a changed configuration to the running daemon."""
        self.command("apply", self.write(document, "changed.toml"))
        self.document = document

    def drops(self):
        """Drop counters by reason, summed over all interfaces and workers."""
        return {row["name"]: row["packets"] for row in self.show("drops")["drops"]}

    def cores(self):
        """The workers, each with its counters by name."""
        return [core | {counter["name"]: counter["count"] for counter in core["counters"]}
                for core in self.show("cores")["cores"]]

    def wait_taken_over(self):
        """Wait until each of two workers has received all packets that the other worker has handed off.

        A single reading is not sufficient, because hosts send packets at any time, and a packet may be in transit.
        """
        def is_taken_over():
            one, other = self.cores()
            return one["handed-over"] == other["taken-over"] and other["handed-over"] == one["taken-over"]

        waiting.until(is_taken_over, "each worker to take over what the other handed to it")

    def wait_for_drop(self, name, more_than, timeout=10.0):
        """Wait until more than `more_than` packets were dropped for the reason `name`."""
        waiting.until(lambda: self.drops().get(name, 0) > more_than, f"a drop {name} after {more_than}", timeout)
