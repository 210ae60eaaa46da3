"""Real DHCP programs: the servers Kea and ISC dhcpd, and the client udhcpc for terminals."""

import json
import os
import re
import signal

from lab import waiting

DHCPD = """\
authoritative;
ping-check false;
stash-agent-options true;
dhcp-cache-threshold 0;
default-lease-time {lifetime};
max-lease-time {lifetime};
{networks}
"""

# udhcpc passes the required action in arguments and environment; the log line shows that the action is complete.
SCRIPT = """\
#!/bin/sh
case "$1" in
deconfig)
    ip address flush dev "$interface"
    ;;
bound | renew)
    ip address show dev "$interface" | grep -q "inet $ip/" || {
        ip address flush dev "$interface"
        ip address add "$ip/$mask" dev "$interface"
    }
    ip route replace default via "${router%% *}" dev "$interface"
    ;;
esac
echo "is $1 ${ip:-nothing}"
"""


class Subnet:
    """A network from which a server leases addresses, and the lease time."""

    def __init__(self, network, first, last, router, lifetime, renew=None, rebind=None):
        self.network, self.first, self.last, self.router = network, first, last, router
        self.lifetime = lifetime
        self.renew = renew or lifetime // 2
        self.rebind = rebind or lifetime * 7 // 8


class Server:
    """A server on an interface of a host, with a folder for its files. After a kill, the server restarts with its
    stored leases."""

    def __init__(self, host, subnet, interface="eth0"):
        self.host, self.subnet, self.interface = host, subnet, interface
        self.folder = os.path.join(host.folder, f"{host.name}-{self.kind}")
        os.makedirs(self.folder, exist_ok=True)
        self.process = None

    def start(self):
        """Start the server, and return when it accepts messages."""
        self.process = self._spawn()
        self.process.wait_for_line(self.ready)
        return self

    def kill(self):
        """Kill the server without a message to clients."""
        self.process.popen.kill()
        self.process.popen.wait()

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path


class Kea(Server):
    """Kea with its leases in a file. `relayed`: Kea answers only relays, through an ordinary socket."""

    kind = "kea"
    ready = "DHCP4_STARTED"

    def __init__(self, host, subnet, interface="eth0", relayed=False):
        super().__init__(host, subnet, interface)
        self.relayed = relayed
        self.leases = os.path.join(self.folder, "kea-leases4.csv")

    def _spawn(self):
        subnet = self.subnet
        document = {
            "interfaces-config": {
                "interfaces": [self.interface], "dhcp-socket-type": "udp" if self.relayed else "raw",
                "service-sockets-max-retries": 50, "service-sockets-retry-wait-time": 100,
            },
            "lease-database": {"type": "memfile", "persist": True, "name": self.leases, "lfc-interval": 5},
            "expired-leases-processing": {"reclaim-timer-wait-time": 1, "hold-reclaimed-time": 60},
            "store-extended-info": True,
            "valid-lifetime": subnet.lifetime, "renew-timer": subnet.renew, "rebind-timer": subnet.rebind,
            "subnet4": [{
                "id": 1, "subnet": subnet.network, "pools": [{"pool": f"{subnet.first} - {subnet.last}"}],
                "option-data": [{"name": "routers", "data": subnet.router}],
                **({} if self.relayed else {"interface": self.interface}),
            }],
            "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout"}]}],
        }
        path = self._write("kea.json", json.dumps({"Dhcp4": document}))
        places = [f"KEA_{what}_DIR={self.folder}" for what in ["PIDFILE", "LOCKFILE"]]
        return self.host.spawn("env", *places, "kea-dhcp4", "-c", path, label="kea")


class Dhcpd(Server):
    """ISC dhcpd, which answers the messages of all relays that arrive on its interface."""

    kind = "dhcpd"
    ready = "Server starting service"

    def __init__(self, host, subnet, interface="eth0", own="0.0.0.0/32"):
        super().__init__(host, subnet, interface)
        self.own = own
        self.leases = os.path.join(self.folder, "dhcpd.leases")
        if not os.path.exists(self.leases):
            self._write("dhcpd.leases", "")

    def _spawn(self):
        subnet, networks = self.subnet, [f"subnet {_masked(self.own)} {{ }}"]
        networks.append(
            f"subnet {_masked(subnet.network)} {{ range {subnet.first} {subnet.last}; option routers {subnet.router}; "
            f"option dhcp-renewal-time {subnet.renew}; option dhcp-rebinding-time {subnet.rebind}; }}"
        )
        path = self._write("dhcpd.conf", DHCPD.format(lifetime=subnet.lifetime, networks="\n".join(networks)))
        return self.host.spawn(
            "dhcpd", "-4", "-f", "-d", "--no-pid", "-user", "root", "-group", "root", "-cf", path, "-lf", self.leases,
            self.interface, label="dhcpd",
        )


def _masked(network):
    address, length = network.split("/")
    mask = 0xFFFFFFFF << 32 - int(length) & 0xFFFFFFFF
    return f"{address} netmask " + ".".join(str(mask >> shift & 255) for shift in [24, 16, 8, 0])


class Client:
    """The DHCP client of a terminal."""

    def __init__(self, host, interface="eth0"):
        self.host, self.interface = host, interface
        self.script = os.path.join(host.folder, "udhcpc.sh")
        if not os.path.exists(self.script):
            with open(self.script, "w", encoding="ascii") as file:
                file.write(SCRIPT)
            os.chmod(self.script, 0o755)
        self.process = None

    def start(self):
        """Start the client, which repeats its request until it has a lease."""
        self.process = self.host.spawn(
            "udhcpc", "-f", "-i", self.interface, "-s", self.script, "-t", "5", "-T", "1", "-A", "1",
            "-x", f"hostname:{self.host.name}", label="udhcpc",
        )
        return self

    @property
    def _said(self):
        """The actions of the client in order, each with its address."""
        return re.findall(r"^is (\w+) (\S+)$", self.process.output, re.MULTILINE)

    @property
    def address(self):
        """The current address of the client, if any."""
        said = [(what, address) for what, address in self._said if what in ("bound", "renew", "deconfig")]
        return said[-1][1] if said and said[-1][0] != "deconfig" else None

    def wait_bound(self, timeout=20.0):
        """Wait until the client has an address, and return the address."""
        return waiting.until(lambda: self.address, f"{self.host.name} to have an address", timeout)

    def wait_renewed(self, timeout=60.0):
        """Wait for the next automatic renewal of the client's lease."""
        before = self._said.count(("renew", self.address))
        waiting.until(
            lambda: self._said.count(("renew", self.address)) > before, f"{self.host.name} to renew its lease", timeout
        )

    def release(self):
        """Release the lease; the client is idle until it is started again."""
        self.process.signal(signal.SIGUSR2)
        waiting.until(lambda: self.address is None, f"{self.host.name} to release its lease")

    def kill(self):
        """Kill the client without a message to the server. The address stays on the interface."""
        self.process.popen.kill()
        self.process.popen.wait()
