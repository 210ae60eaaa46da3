"""Linux's side: a gateway with nftables' NAT in a namespace, and all hosts behind one packet socket in another.

Everything runs on one core: what the kernel does with a packet it does in turn, so that a marker that is sent behind
a packet comes out behind all that the packet has led to.
"""

import os
import select
import socket
import struct
import subprocess

from lab.host import Host, connect
from lab.oracle import packet
from lab.oracle.scenario import INVALID, Seen
from lab.oracle.sluice import whole
from lab.oracle.world import INTERFACES, LINKS, LINKS6
from lab.wire import ETH_P_ALL

SOL_PACKET, IGNORE_OUTGOING = 263, 23
MARKER = packet.udp((("198.51.100.2", 9), ("192.168.1.2", 9)), b"marker")
MARKER_PASSES = "ip saddr 198.51.100.2 udp sport 9 accept"
SETTINGS = [
    "net.ipv4.ip_forward=1",
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv4.icmp_ratemask=0",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.default.send_redirects=0",
    # What begins in the middle of a connection is invalid; windows are the hosts' matter.
    "net.netfilter.nf_conntrack_tcp_loose=0",
    "net.netfilter.nf_conntrack_tcp_be_liberal=1",
]
SETTINGS6 = ["net.ipv6.conf.all.forwarding=1", "net.ipv6.icmp.ratelimit=0", "net.ipv6.icmp.ratemask="]


class Netfilter:
    """The gateway and the hosts around it; with `six` it forwards IPv6, too."""

    def __init__(self, folder, name="netfilter", six=False):
        os.makedirs(folder, exist_ok=True)
        self.gateway, self.hosts = Host(name, folder), Host(f"{name}-around", folder)
        self.world = None
        for host in (self.gateway, self.hosts):
            host.setting("net.ipv6.conf.default.disable_ipv6=1")
            host.setting("net.ipv6.conf.all.disable_ipv6=1")
        if six:
            # Without addresses of links it sends no redirects, which nothing else keeps it from.
            for setting in ("disable_ipv6=0", "addr_gen_mode=1"):
                self.gateway.setting(f"net.ipv6.conf.default.{setting}")
                self.gateway.setting(f"net.ipv6.conf.all.{setting}")
        self.macs = {}
        for name in (*INTERFACES, INVALID):
            connect(self.gateway, name, self.hosts, name)
            self.hosts.run("ip", "link", "set", name, "arp", "off")
            self.macs[name] = bytes.fromhex(self.gateway.mac(name).replace(":", ""))
        self._route()
        if six:
            self._route6()
        with self.hosts.network():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        with self.gateway.network():
            self.tracking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
        self.core = min(os.sched_getaffinity(0))

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
        self.socket.close()
        self.tracking.close()
        self.gateway.remove()
        self.hosts.remove()

    def configure(self, world):
        """Take a world's rules, and route its pools nowhere: what is translated back does not get there."""
        gateway = self.gateway
        rules = world.nftables([] if world.six else [MARKER_PASSES])
        subprocess.run(["ip", "netns", "exec", gateway.name, "nft", "-f", "-"], input=rules, encoding="utf-8", check=True)
        routes = [f"route del {a}/32" for a in (self.world.pool_addresses() if self.world else ())]
        routes += [f"route add blackhole {a}/32" for a in world.pool_addresses()]
        routes.append(f"link set outside mtu {world.outside_mtu}")
        subprocess.run(
            ["ip", "-netns", gateway.name, "-batch", "-"], input="\n".join(routes) + "\n", encoding="utf-8", check=True
        )
        self.world = world

    def play(self, world, scenarios):
        """As Sluice's: by scenario a list of outputs, one per step."""
        if world is not self.world:
            self.configure(world)
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.core})
        try:
            return [self._scenario(scenario) for scenario in scenarios]
        finally:
            os.sched_setaffinity(0, allowed)

    def _scenario(self, scenario):
        if self.world.tracks:
            self.forget()
        seen, result = Seen(scenario), []
        for step in scenario.steps:
            made = seen.frames(step)
            if made is None:
                result.append(None)
                continue
            interface, datagrams = made
            outputs = whole(self._exchange(interface, datagrams))
            seen.note(step, outputs)
            result.append(outputs)
        return result

    def _exchange(self, interface, datagrams):
        for datagram in datagrams:
            self._send(interface, datagram)
        self._send("outside", MARKER)
        outputs = []
        while True:
            if not select.select([self.socket], [], [], 10)[0]:
                raise AssertionError("the marker did not come back")
            frame, address = self.socket.recvfrom(65535)
            # Groups are the gateway's own matter: who listens to which.
            if frame[12:14] not in (b"\x08\x00", b"\x86\xdd") or frame[0] & 1:
                continue
            datagram = packet.read(frame[14:])
            if datagram.payload == MARKER.payload:
                return outputs
            outputs.append((address[0], datagram))

    def _send(self, interface, datagram):
        frame = self.macs[interface] + bytes(6) + datagram.TYPE + bytes(datagram)
        self.socket.sendto(frame, (interface, int.from_bytes(datagram.TYPE)))

    def forget(self):
        """End all that connection tracking knows."""
        # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE with REQUEST and ACK: no filter means all.
        body = struct.pack("!BBH", socket.AF_UNSPEC, 0, 0)
        self.tracking.send(struct.pack("=IHHII", 16 + len(body), 1 << 8 | 2, 5, 0, 0) + body)
        answer = self.tracking.recv(4096)
        code = struct.unpack_from("=i", answer, 16)[0]
        if code:
            raise OSError(-code, os.strerror(-code), "ending the tracked connections")
