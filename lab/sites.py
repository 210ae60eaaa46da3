"""Sites behind an access switch and a CGNAT: terminals with DHCP clients, the switch that adds the tags, private DHCP servers behind
the gateway, and the operator's network with its own DHCP server.

    alice, anna ── home1 ── port1 ┐                                             ┌ Kea: 198.51.100.100 to .199
    bob, bella ─── home2 ── port2 ├ switch ── trunk ═ access ─ gateway ─ outside ── operator ┤
    carol, chris ─ office ─ port3 ┘                              │              └ nginx: 203.0.113.80
                                                                core
                                                                 │
                                                        dhcp (a bridge) ┬ homes-dhcp
                                                                        └ others-dhcp
"""

import contextlib
import hashlib
import os
import shutil
import socket

from lab import waiting
from lab.dhcp import Client, Dhcpd, Kea, Subnet
from lab.gateway import Sluice
from lab.host import Host, connect
from lab.topology import Laid

PUBLIC = "198.51.100.0/24"
SERVER = "203.0.113.80"
PRIVATE = "10.0.0.0/16"
RELAY = "10.0.0.1"

# The lease time is short, so that leases expire during a demonstration. udhcpc renews a lease after half of this time.
PRIVATE_SECONDS = 24


class Site:
    """A site with its name in the configuration, its tags, its host, and its terminals."""

    def __init__(self, host, group, tags, port, terminals):
        self.host, self.group, self.tags, self.port, self.terminals = host, group, tags, port, terminals
        self.name = f"{group}-{tags}"


class Sites(Laid):
    """The hosts and their links. The caller chooses the programs of switch and gateway."""

    PLAN = [
        ("home1", "homes", "100.1", ["alice", "anna"]),
        ("home2", "homes", "100.2", ["bob", "bella"]),
        ("office", "others", "200.1", ["carol", "chris"]),
    ]

    def __init__(self, folder="/run/lab/sites"):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.hosts, self.sites, self.terminals = [], [], {}
        self.switch, self.gateway = self._host("switch"), self._host("gateway")
        for host in [self.switch, self.gateway]:
            host.setting("net.ipv6.conf.default.disable_ipv6=1")
        # Two tags, and possibly a terminal's own tag, make frames longer than on an untagged link.
        connect(self.switch, "trunk", self.gateway, "access", 1508)
        for number, plan in enumerate(self.PLAN, 1):
            self._site(f"port{number}", *plan)
        self.operator = self._host("operator")
        connect(self.gateway, "outside", self.operator, "eth0")
        self._operator()
        self.dhcp = self._bridge("dhcp")
        connect(self.gateway, "core", self.dhcp, "core")
        self.homes_dhcp, self.others_dhcp = self._server("homes", 10), self._server("others", 11)
        self.dhcp.run("ip", "link", "set", "core", "master", "br0")

    def _host(self, name):
        host = Host(name, self.folder)
        self.hosts.append(host)
        return host

    def _bridge(self, name):
        host = self._host(name)
        host.setting("net.ipv6.conf.default.disable_ipv6=1")
        host.run("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        host.run("ip", "link", "set", "br0", "up")
        return host

    def _site(self, port, name, group, tags, terminals):
        site = self._bridge(name)
        connect(self.switch, port, site, "uplink")
        site.run("ip", "link", "set", "uplink", "master", "br0")
        for terminal in terminals:
            host = self.terminals[terminal] = self._host(terminal)
            host.setting("net.ipv6.conf.default.disable_ipv6=1")
            connect(site, terminal, host, "eth0")
            site.run("ip", "link", "set", terminal, "master", "br0")
        self.sites.append(Site(site, group, tags, port, [self.terminals[name] for name in terminals]))

    def _operator(self):
        operator = self.operator
        operator.address, operator.address6 = SERVER, "2001:db8:b::80"
        operator.setting("net.ipv4.icmp_ratelimit=0")
        operator.run("ip", "address", "add", "198.51.100.1/24", "dev", "eth0")
        operator.run("ip", "address", "add", f"{SERVER}/32", "dev", "lo")

    def _server(self, group, last):
        host = self._host(f"{group}-dhcp")
        connect(self.dhcp, group, host, "eth0")
        self.dhcp.run("ip", "link", "set", group, "master", "br0")
        host.address = f"192.0.2.{last}"
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "route", "add", "default", "via", "192.0.2.1")
        return host

    def site_of(self, terminal):
        """The site of a terminal, by its name."""
        return next(site for site in self.sites if any(host.name == terminal for host in site.terminals))


def switch_configuration():
    """Configuration of the access switch. Each port is in a bridge with the VLAN of its site."""
    interfaces, bridges = {"trunk": {"device": "trunk"}}, {}
    for number, (name, _, tags, _) in enumerate(Sites.PLAN, 1):
        interfaces[f"port{number}"] = {"device": f"port{number}"}
        interfaces[name] = {"parent": "trunk", "vlan": tags}
        bridges[name] = {"interfaces": [f"port{number}", name]}
    return {
        "system": {"name": "switch", "workers": 1},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": "/run/lab/switch", "log": "debug"},
        "interfaces": interfaces,
        "bridges": bridges,
    }


def gateway_configuration(folder, homes, others):
    """Configuration of the gateway between `access`, `core` and `outside`, with the private servers of both groups."""
    dhcp = {
        name: {"server": server.host.address, "leases": server.leases, "format": server.kind}
        for name, server in [("homes", homes), ("others", others)]
    }
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 16384, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {
            "access": {"device": "access", "addresses": [f"{RELAY}/16"]},
            "outside": {"device": "outside", "addresses": ["198.51.100.2/24"]},
            "core": {"device": "core", "addresses": ["192.0.2.1/24"]},
        },
        "routes": [{"to": "0.0.0.0/0", "via": "198.51.100.1"}],
        "subscribers": {
            "sites": {
                "homes": {"interface": "access", "tags": "100.1-2", "dhcp": "homes", "public": "outside"},
                "others": {"interface": "access", "tags": "200.1", "dhcp": "others", "public": "outside"},
            },
            "dhcp": dhcp,
            "public": {
                "outside": {"prefixes": [PUBLIC], "state": os.path.join(folder, "public-leases"), "hold": "3s"},
            },
        },
    }


def private(host, kind="kea", lifetime=PRIVATE_SECONDS):
    """A private server for the sites of a group. The servers of both groups lease the same addresses."""
    subnet = Subnet(PRIVATE, "10.0.1.10", "10.0.1.99", RELAY, lifetime)
    if kind == "dhcpd":
        return Dhcpd(host, subnet, own="192.0.2.0/24")
    return Kea(host, subnet, relayed=True)


def public(host):
    """The operator's server. Its leases are short, so that renewals occur during a demonstration."""
    return Kea(host, Subnet(PUBLIC, "198.51.100.100", "198.51.100.199", "198.51.100.1", 60, 6, 12))


def call(client, server, port, local=0, listener=None):
    """A TCP connection of a terminal to the server, from a given port if specified. Returns the sockets of both
    ends."""
    with contextlib.nullcontext(listener) if listener else server.listener(port) as accepting:
        ours = client.open_socket(kind=socket.SOCK_STREAM)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind(("", local))
        ours.connect((SERVER, port))
        theirs, _ = accepting.accept()
    theirs.settimeout(5)
    return ours, theirs


class Lab:
    """The running topology: switch, gateway, servers, and the clients of all terminals."""

    def __init__(self, topology, binary, homes="kea"):
        self.topology = topology
        self.switch = Sluice(topology.switch, binary, switch_configuration())
        self.homes = private(topology.homes_dhcp, homes)
        self.others = private(topology.others_dhcp)
        self.operator = public(topology.operator)
        document = gateway_configuration(topology.folder, self.homes, self.others)
        self.gateway = Sluice(topology.gateway, binary, document)
        self.clients = {name: Client(host) for name, host in topology.terminals.items()}

    def start(self):
        """Start all programs, and return when every terminal has an address."""
        self.switch.start()
        self.gateway.start()
        for server in [self.operator, self.homes, self.others]:
            server.start()
        for client in self.clients.values():
            client.start()
        for client in self.clients.values():
            client.wait_bound()
        self.wait_public(*self.topology.sites)

    def stop(self):
        """Terminate gateway and switch."""
        self.gateway.stop()
        self.switch.stop()

    def sites(self):
        """The output of `show sites`, by name."""
        return {row["name"]: row for row in self.gateway.show("sites")["sites"]}

    def leases(self, *filters):
        """The output of `show leases`, by site and address."""
        return {(row.get("site"), row["address"]): row for row in self.gateway.show("leases", *filters)["leases"]}

    def lease_of(self, terminal):
        """The lease of a terminal in the output of `show leases`, if it exists."""
        mac = self.topology.terminals[terminal].mac()
        return next((row for row in self.leases().values() if row["mac"] == mac), None)

    def wait_public(self, *sites, timeout=20.0):
        """Wait until sites have their public addresses."""
        for site in sites:
            waiting.until(lambda site=site: self.sites()[site.name].get("public"), f"{site.name} to have an address", timeout)

    def fetch(self, terminal, path="/whoami", *options):
        """The HTTP response that a terminal receives, or `None`."""
        host = self.topology.terminals[terminal]
        return host.run("curl", "-sS", "-m", "10", *options, f"http://{SERVER}{path}", check=False).strip()

    def digest(self, terminal, path):
        """The hash of a file that a terminal downloads."""
        host = self.topology.terminals[terminal]
        target = os.path.join(host.folder, f"{terminal}-fetched")
        host.run("curl", "-sS", "-m", "20", "-o", target, f"http://{SERVER}{path}")
        with open(target, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def seen_as(self, terminal):
        """The source address of a terminal as seen by the server."""
        return self.fetch(terminal).split()[0]
