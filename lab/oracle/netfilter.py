"""The Linux system: a gateway with the NAT of nftables in one namespace, and all hosts behind one packet socket in
another namespace.

All programs run on one core, so that the kernel processes packets in order. A marker that is sent after a packet
therefore arrives after all packets that this packet has caused.
"""

import json
import os
import socket
import struct
import subprocess

from lab.oracle import packet
from lab.oracle.scenario import INVALID
from lab.oracle.wires import MARK, Wires
from lab.oracle.world import INTERFACES, LINKS, LINKS6

MARKER = packet.udp((("198.51.100.2", 9), ("192.168.1.2", 9)), MARK)
MARKER_PASSES = "ip saddr 198.51.100.2 udp sport 9 accept"
SETTINGS = [
    "net.ipv4.ip_forward=1",
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv4.icmp_ratemask=0",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.default.send_redirects=0",
    # Packets in the middle of an unknown connection are invalid; TCP windows are not checked.
    "net.netfilter.nf_conntrack_tcp_loose=0",
    "net.netfilter.nf_conntrack_tcp_be_liberal=1",
]
SETTINGS6 = ["net.ipv6.conf.all.forwarding=1", "net.ipv6.icmp.ratelimit=0", "net.ipv6.icmp.ratemask="]


class Netfilter(Wires):
    """The gateway and the hosts around it. With `six`, the gateway also forwards IPv6."""

    def __init__(self, folder, name="netfilter", six=False):
        self.six = six
        super().__init__(folder, name, (*INTERFACES, INVALID))
        self._route()
        if six:
            self._route6()
        with self.gateway.network():
            self.tracking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
        self.core = min(os.sched_getaffinity(0))

    def _prepare(self):
        if self.six:
            # The links have no addresses, because the kernel would otherwise send redirects.
            for setting in ("disable_ipv6=0", "addr_gen_mode=1"):
                self.gateway.setting(f"net.ipv6.conf.default.{setting}")
                self.gateway.setting(f"net.ipv6.conf.all.{setting}")

    def _route(self):
        gateway = self.gateway
        for name, (own, neighbour, network) in LINKS.items():
            gateway.run("ip", "address", "add", f"{own}/24", "dev", name)
            mac = self.hosts.mac(name)
            gateway.run("ip", "neighbour", "add", neighbour, "lladdr", mac, "dev", name, "nud", "permanent")
            gateway.run("ip", "route", "add", network, "via", neighbour)
        gateway.run("ip", "address", "add", "192.0.2.1/30", "dev", INVALID)
        mac = self.hosts.mac(INVALID)
        gateway.run("ip", "neighbour", "add", "192.0.2.2", "lladdr", mac, "dev", INVALID, "nud", "permanent")
        gateway.run("ip", "route", "add", "default", "via", "192.0.2.2", "table", "1")
        gateway.run("ip", "rule", "add", "fwmark", "1", "lookup", "1", "priority", "0")
        for setting in SETTINGS:
            gateway.setting(setting)

    def _route6(self):
        gateway = self.gateway
        for name, (own, neighbour, network) in LINKS6.items():
            gateway.run("ip", "address", "add", f"{own}/64", "dev", name, "nodad")
            gateway.run("ip", "neighbour", "add", neighbour, "lladdr", self.hosts.mac(name), "dev", name, "nud", "permanent")
            gateway.run("ip", "route", "add", network, "via", neighbour)
        gateway.run("ip", "address", "add", "fd00:0:0:9::1/64", "dev", INVALID, "nodad")
        mac = self.hosts.mac(INVALID)
        gateway.run("ip", "neighbour", "add", "fd00:0:0:9::2", "lladdr", mac, "dev", INVALID, "nud", "permanent")
        gateway.run("ip", "-6", "route", "add", "default", "via", "fd00:0:0:9::2", "table", "1")
        gateway.run("ip", "-6", "rule", "add", "fwmark", "1", "lookup", "1", "priority", "0")
        for setting in SETTINGS6:
            gateway.setting(setting)

    def remove(self):
        self.tracking.close()
        super().remove()

    def configure(self, world):
        """Load a world's rules, and add blackhole routes for its pools. Packets that are translated back do not
        reach these routes."""
        gateway = self.gateway
        rules = world.nftables([] if world.six else [MARKER_PASSES])
        subprocess.run(["ip", "netns", "exec", gateway.name, "nft", "-f", "-"], input=rules, encoding="utf-8", check=True)
        routes = [f"route del {a}/32" for a in (self.world.pool_addresses() if self.world else ())]
        routes += [f"route add blackhole {a}/32" for a in world.pool_addresses()]
        routes.append(f"link set outside mtu {world.outside_mtu}")
        subprocess.run(
            ["ip", "-netns", gateway.name, "-batch", "-"], input="\n".join(routes) + "\n", encoding="utf-8", check=True
        )

    def play_changed(self, worlds, scenarios):
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.core})
        try:
            return super().play_changed(worlds, scenarios)
        finally:
            os.sched_setaffinity(0, allowed)

    def _begin(self):
        if self.world.tracks:
            self.forget()

    def _markers(self, interface):
        return [("outside", MARKER)]

    def counted(self):
        if self.world.tracks:
            return {}
        listed = json.loads(self.gateway.run("nft", "-j", "list", "counters"))["nftables"]
        counters = [entry["counter"] for entry in listed if "counter" in entry]
        return {counter["name"]: (counter["packets"], counter["bytes"]) for counter in counters}

    def forget(self):
        """Delete all entries of connection tracking."""
        # The message is IPCTNL_MSG_CT_DELETE of NFNL_SUBSYS_CTNETLINK with REQUEST and ACK. Without a filter, it
        # deletes all entries.
        body = struct.pack("!BBH", socket.AF_UNSPEC, 0, 0)
        self.tracking.send(struct.pack("=IHHII", 16 + len(body), 1 << 8 | 2, 5, 0, 0) + body)
        answer = self.tracking.recv(4096)
        code = struct.unpack_from("=i", answer, 16)[0]
        if code:
            raise OSError(-code, os.strerror(-code), "ending the tracked connections")
