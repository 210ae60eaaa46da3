"""The topology of the demonstration and of the system tests.

    alice ── inside1 ┐                                        ┌ nginx
                     ├─ gateway ── outside ── upstream ── server ┤ DNS
    bob ──── inside2 ┘                                        └ iperf3

The upstream router routes the pool (203.0.113.16/28) and the inside IPv6 networks to the gateway.
"""

import os
import shutil

from lab.host import Host, connect

POOL = [f"203.0.113.{last}" for last in range(16, 32)]
FORWARDED = "203.0.113.40"


class Laid:
    """Hosts connected by links."""

    def remove(self):
        """End all programs and remove the topology."""
        for host in reversed(self.hosts):
            host.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


class Topology(Laid):
    """The five hosts and their links. The caller chooses the program of the gateway."""

    def __init__(self, folder="/run/lab/topology", mtu=1500):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.hosts = []
        self.alice = self._inside(1)
        self.bob = self._inside(2)
        self.gateway = self._host("gateway")
        self.upstream = self._host("upstream")
        self.server = self._host("server")
        # The gateway's kernel must not interfere, so it has no address and no neighbour discovery.
        self.gateway.setting("net.ipv6.conf.default.disable_ipv6=1")
        connect(self.gateway, "inside1", self.alice, "eth0", mtu)
        connect(self.gateway, "inside2", self.bob, "eth0", mtu)
        connect(self.gateway, "outside", self.upstream, "eth0", mtu)
        connect(self.upstream, "eth1", self.server, "eth0", mtu)
        self._address()

    def _host(self, name):
        host = Host(name, self.folder)
        self.hosts.append(host)
        return host

    def _inside(self, number):
        host = self._host(["alice", "bob"][number - 1])
        host.address = f"192.168.{number}.2"
        host.address6 = f"2001:db8:{number}::2"
        host.gateway = f"192.168.{number}.1"
        host.gateway6 = f"2001:db8:{number}::1"
        return host

    def _address(self):
        for host in [self.alice, self.bob]:
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "route", "add", "default", "via", host.gateway)
            host.run("ip", "-6", "address", "add", f"{host.address6}/64", "dev", "eth0", "nodad")
            host.run("ip", "-6", "route", "add", "default", "via", host.gateway6)
        up, server = self.upstream, self.server
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.icmp_ratelimit=0"]:
            up.setting(setting)
        up.address, up.address6 = "198.51.100.1", "2001:db8:a::1"
        up.run("ip", "address", "add", "198.51.100.1/25", "dev", "eth0")
        up.run("ip", "-6", "address", "add", "2001:db8:a::1/64", "dev", "eth0", "nodad")
        up.run("ip", "address", "add", "198.51.100.129/25", "dev", "eth1")
        up.run("ip", "-6", "address", "add", "2001:db8:b::1/64", "dev", "eth1", "nodad")
        up.run("ip", "route", "add", "203.0.113.0/24", "via", "198.51.100.2")
        for inside in ["2001:db8:1::/64", "2001:db8:2::/64"]:
            up.run("ip", "-6", "route", "add", inside, "via", "2001:db8:a::2")
        server.address, server.address6 = "198.51.100.130", "2001:db8:b::130"
        server.setting("net.ipv4.icmp_ratelimit=0")
        server.run("ip", "address", "add", "198.51.100.130/25", "dev", "eth0")
        server.run("ip", "route", "add", "default", "via", "198.51.100.129")
        server.run("ip", "-6", "address", "add", "2001:db8:b::130/64", "dev", "eth0", "nodad")
        server.run("ip", "-6", "route", "add", "default", "via", "2001:db8:b::1")


class Bridged(Laid):
    """Two hosts of one network with a bridge between the hosts:

        alice ── left ─ gateway ─ right ── server
    """

    def __init__(self, folder="/run/lab/bridged", mtu=1500):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.hosts = [Host(name, folder) for name in ["alice", "gateway", "server"]]
        self.alice, self.gateway, self.server = self.hosts
        self.gateway.setting("net.ipv6.conf.default.disable_ipv6=1")
        connect(self.gateway, "left", self.alice, "eth0", mtu)
        connect(self.gateway, "right", self.server, "eth0", mtu)
        for host, last in [(self.alice, 2), (self.server, 130)]:
            host.address, host.address6 = f"198.51.100.{last}", f"2001:db8:b::{last}"
            host.setting("net.ipv4.icmp_ratelimit=0")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "-6", "address", "add", f"{host.address6}/64", "dev", "eth0", "nodad")


class Customers(Laid):
    """Two customers with the same addresses. Each customer has a separate virtual router and a separate provider:

        red-host ── red-in ┐         ┌ red-out ── red-server
                           ├ gateway ┤
        blue-host ─ blue-in┘         └ blue-out ─ blue-server
    """

    NAMES = ["red", "blue"]

    def __init__(self, folder="/run/lab/customers", mtu=1500):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.gateway = Host("gateway", folder)
        self.gateway.setting("net.ipv6.conf.default.disable_ipv6=1")
        self.hosts, self.customers, self.servers = [self.gateway], {}, {}
        for name in self.NAMES:
            host = self.customers[name] = Host(f"{name}-host", folder)
            server = self.servers[name] = Host(f"{name}-server", folder)
            self.hosts += [host, server]
            connect(self.gateway, f"{name}-in", host, "eth0", mtu)
            connect(self.gateway, f"{name}-out", server, "eth0", mtu)
            host.address, server.address = "10.0.0.2", "198.51.100.1"
            host.run("ip", "address", "add", "10.0.0.2/24", "dev", "eth0")
            host.run("ip", "route", "add", "default", "via", "10.0.0.1")
            host.run("ip", "-6", "address", "add", "2001:db8:1::2/64", "dev", "eth0", "nodad")
            host.run("ip", "-6", "route", "add", "default", "via", "2001:db8:1::1")
            server.setting("net.ipv4.icmp_ratelimit=0")
            server.run("ip", "address", "add", "198.51.100.1/25", "dev", "eth0")
            server.run("ip", "route", "add", "203.0.113.0/24", "via", "198.51.100.2")
            server.run("ip", "-6", "address", "add", "2001:db8:a::1/64", "dev", "eth0", "nodad")
            server.run("ip", "-6", "route", "add", "default", "via", "2001:db8:a::2")


class TwoWays(Laid):
    """Two hosts, and a server with two links:

        alice ── inside1 ┐         ┌ east ┐
                         ├ gateway ┤      ├ server
        bob ──── inside2 ┘         └ west ┘
    """

    # For each link: the server's interface and address, the gateway's address, and the server's metric.
    LINKS = {"east": ("eth0", "198.51.100.1", "198.51.100.2", "10"), "west": ("eth1", "198.51.100.5", "198.51.100.6", "20")}

    def __init__(self, folder="/run/lab/two-ways", mtu=1500):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.hosts = [Host(name, folder) for name in ["gateway", "alice", "bob", "server"]]
        self.gateway, self.alice, self.bob, self.server = self.hosts
        self.gateway.setting("net.ipv6.conf.default.disable_ipv6=1")
        for number, host in enumerate([self.alice, self.bob], 1):
            connect(self.gateway, f"inside{number}", host, "eth0", mtu)
            host.address = f"192.168.{number}.2"
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "route", "add", "default", "via", f"192.168.{number}.1")
        for setting in ["net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"]:
            self.server.setting(setting)
        self.server.run("ip", "link", "set", "lo", "up")
        for address in ["192.0.2.1", "192.0.2.130", "203.0.113.1"]:
            self.server.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        for link, (end, address, _, _) in self.LINKS.items():
            connect(self.gateway, link, self.server, end, mtu)
            self.server.run("ip", "address", "add", f"{address}/30", "dev", end)
            self.restore(link)

    def restore(self, link):
        """Restore a link, and route the server's replies over it."""
        end, _, gateway, metric = self.LINKS[link]
        self.server.run("ip", "link", "set", end, "up")
        for inside in ["192.168.1.0/24", "192.168.2.0/24"]:
            self.server.run("ip", "route", "replace", inside, "via", gateway, "dev", end, "metric", metric)

    def cut(self, link):
        """Cut a link, so that both ends lose their carrier."""
        self.server.run("ip", "link", "set", self.LINKS[link][0], "down")


class Providers(Laid):
    """A site with two providers at its gateway, and a server that is reachable through both providers:

        alice ── inside ─ gateway ┬ fibre ── fibre ┬ server
                                  └ cable ── cable ┘

    Alice represents many hosts, and has an address for each. The server answers an outside address through the provider
    to which the address belongs.
    """

    # For each provider: the network of its link without the last byte, its AS, and its announced network.
    LINKS = {"fibre": ("198.51.100", 65001, "10.99.1.0/24"), "cable": ("203.0.113", 65002, "10.99.2.0/24")}
    HOSTS = [f"192.168.1.{last}" for last in range(2, 26)]
    SERVER = "192.0.2.130"

    def __init__(self, folder="/run/lab/providers", mtu=1500):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.gateway, self.alice, self.server = [Host(name, folder) for name in ["gateway", "alice", "server"]]
        self.hosts, self.providers = [self.gateway, self.alice, self.server], {}
        self.gateway.setting("net.ipv6.conf.default.disable_ipv6=1")
        connect(self.gateway, "inside", self.alice, "eth0", mtu)
        for address in self.HOSTS:
            self.alice.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        self.alice.run("ip", "route", "add", "default", "via", "192.168.1.1")
        self.server.setting("net.ipv4.conf.all.rp_filter=0")
        self.server.setting("net.ipv4.conf.default.rp_filter=0")
        self.server.run("ip", "address", "add", f"{self.SERVER}/32", "dev", "lo")
        for number, (name, (network, _, _)) in enumerate(self.LINKS.items()):
            provider = self.providers[name] = Host(name, folder)
            self.hosts.append(provider)
            provider.setting("net.ipv4.ip_forward=1")
            connect(self.gateway, name, provider, "eth0", mtu)
            connect(provider, "eth1", self.server, f"eth{number}", mtu)
            provider.run("ip", "address", "add", f"{network}.1/24", "dev", "eth0")
            provider.run("ip", "address", "add", f"10.0.{number}.1/30", "dev", "eth1")
            self.server.run("ip", "address", "add", f"10.0.{number}.2/30", "dev", f"eth{number}")
            self.server.run("ip", "route", "add", f"{network}.0/24", "via", f"10.0.{number}.1")
            provider.run("ip", "route", "add", f"{self.SERVER}/32", "via", f"10.0.{number}.2")


class Offices(Laid):
    """Two offices, each with its own gateway, and a network between the gateways, on which a Linux host also terminates
    tunnels:

        left-host ── lan ┐                                    ┌ lan ── right-host
                         left ── wan ── between ── wan ── right
                                          └── linux

    The path to the right office has a smaller MTU than the other paths. An office's host has an address for each
    tunnel, so that answers return through the tunnel of their requests.
    """

    SIDES = {"left": 1, "right": 2}

    def __init__(self, tunnels, folder="/run/lab/offices", narrow=1400):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.between, self.linux = Host("between", folder), Host("linux", folder)
        self.hosts, self.gateways, self.offices = [self.between, self.linux], {}, {}
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.icmp_ratelimit=0",
                        "net.ipv6.icmp.ratelimit=0"]:
            self.between.setting(setting)
        for name, number in self.SIDES.items():
            gateway, host = self.gateways[name], self.offices[name] = Host(name, folder), Host(f"{name}-host", folder)
            self.hosts += [gateway, host]
            gateway.setting("net.ipv6.conf.default.disable_ipv6=1")
            connect(gateway, "lan", host, "eth0")
            connect(gateway, "wan", self.between, name)
            self._address(self.between, name, number, 254)
            for tunnel in range(1, tunnels + 1):
                host.run("ip", "address", "add", f"10.{number}.{tunnel}.2/24", "dev", "eth0")
                host.run("ip", "-6", "address", "add", f"2001:db8:{number}:{tunnel}::2/64", "dev", "eth0", "nodad")
            host.run("ip", "route", "add", "default", "via", f"10.{number}.1.1")
            host.run("ip", "-6", "route", "add", "default", "via", f"2001:db8:{number}:1::1")
        # The MTU of the route, because an MTU of the interface would also drop longer received packets.
        for family, network in [("-4", "192.0.2.0/24"), ("-6", "2001:db8:f002::/64")]:
            self.between.run("ip", family, "route", "delete", network, "dev", "right")
            self.between.run("ip", family, "route", "add", network, "dev", "right", "mtu", "lock", str(narrow))
        connect(self.linux, "eth0", self.between, "linux")
        self._address(self.between, "linux", 3, 254)
        self._address(self.linux, "eth0", 3, 1)
        self.linux.run("ip", "route", "add", "default", "via", "192.0.3.254")
        self.linux.run("ip", "-6", "route", "add", "default", "via", "2001:db8:f003::fe")

    @staticmethod
    def _address(host, interface, number, last):
        host.run("ip", "address", "add", f"192.0.{number}.{last}/24", "dev", interface)
        host.run("ip", "-6", "address", "add", f"2001:db8:f00{number}::{last:x}/64", "dev", interface, "nodad")


class Backbone(Laid):
    """Two customers with the same addresses, and a backbone with two exits. The exits are routers with different
    software:

        red ── red-in ┐                     ┌ north-out ── north ── server
                      ├ gateway ── tell ─ teller           │ │
        blue ─ blue-in┘                     └ south-out ── south

    `red` has a network behind it. The daemon on `teller` sends its routes to the gateway.
    """

    NAMES = ["red", "blue"]

    def __init__(self, folder="/run/lab/backbone"):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        names = ["gateway", "red", "blue", "north", "south", "server", "teller"]
        self.hosts = [Host(name, folder) for name in names]
        self.gateway, self.red, self.blue, self.north, self.south, self.server, self.teller = self.hosts
        self.gateway.setting("net.ipv6.conf.default.disable_ipv6=1")
        for customer in [self.red, self.blue]:
            connect(self.gateway, f"{customer.name}-in", customer, "eth0")
            customer.run("ip", "address", "add", "10.0.0.2/24", "dev", "eth0")
        self.blue.run("ip", "route", "add", "default", "via", "10.0.0.1")
        self.red.run("ip", "address", "add", "10.0.1.1/32", "dev", "lo")
        self.red.run("ip", "-6", "address", "add", "2001:db8:1::2/64", "dev", "eth0", "nodad")
        self.red.run("ip", "-6", "address", "add", "2001:db8:11::1/128", "dev", "lo", "nodad")
        connect(self.gateway, "north-out", self.north, "eth0")
        connect(self.gateway, "south-out", self.south, "eth0")
        connect(self.north, "between", self.south, "between")
        connect(self.north, "eth1", self.server, "eth0")
        for host, last, between in [(self.north, 1, 1), (self.south, 5, 2)]:
            host.setting("net.ipv4.ip_forward=1")
            host.setting("net.ipv6.conf.all.forwarding=1")
            host.run("ip", "address", "add", f"198.51.100.{last}/30", "dev", "eth0")
            host.run("ip", "address", "add", f"198.51.100.{16 + between}/30", "dev", "between")
        self.north.run("ip", "-6", "address", "add", "2001:db8:a::1/64", "dev", "eth0", "nodad")
        self.north.run("ip", "-6", "address", "add", "2001:db8:b::1/64", "dev", "eth1", "nodad")
        self.north.run("ip", "-6", "route", "add", "2001:db8:10::/44", "via", "2001:db8:a::2")
        self.north.run("ip", "address", "add", "192.0.2.129/25", "dev", "eth1")
        # Destinations that are not announced to this router use the other exit.
        self.north.run("ip", "route", "add", "203.0.113.0/24", "via", "198.51.100.18", "metric", "500")
        self.south.run("ip", "route", "add", "192.0.2.128/25", "via", "198.51.100.17")
        self.server.address, self.server.address6 = "192.0.2.130", "2001:db8:b::130"
        self.server.run("ip", "address", "add", "192.0.2.130/25", "dev", "eth0")
        self.server.run("ip", "-6", "address", "add", "2001:db8:b::130/64", "dev", "eth0", "nodad")
        self.server.run("ip", "route", "add", "default", "via", "192.0.2.129")
        self.server.run("ip", "-6", "route", "add", "default", "via", "2001:db8:b::1")
        connect(self.gateway, "tell", self.teller, "eth0")
        self.gateway.run("ip", "address", "add", "10.255.0.1/30", "dev", "tell")
        self.teller.run("ip", "address", "add", "10.255.0.2/30", "dev", "eth0")
        connect(self.teller, "blue-up", self.teller, "beyond")
        self.teller.run("ip", "address", "add", "100.64.0.2/31", "dev", "blue-up")
