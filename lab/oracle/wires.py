"""A live gateway in one namespace, and all hosts around it behind one packet socket in another namespace.

A marker that is sent after a packet arrives after all packets that this packet has caused. When the marker has arrived,
the results of the packet are complete.
"""

import os
import select
import socket

from lab.host import Host, connect
from lab.oracle import packet
from lab.oracle.scenario import Seen
from lab.oracle.sluice import whole
from lab.wire import ETH_P_ALL

SOL_PACKET, IGNORE_OUTGOING = 263, 23
MARK = b"marker"


class Wires:
    """A gateway between links. Subclasses define the gateway itself."""

    def __init__(self, folder, name, interfaces):
        os.makedirs(folder, exist_ok=True)
        self.gateway, self.hosts = Host(name, folder), Host(f"{name}-around", folder)
        self.world = None
        # Counters of the rules of the most recent world.
        self.counts = []
        for host in (self.gateway, self.hosts):
            host.setting("net.ipv6.conf.default.disable_ipv6=1")
            host.setting("net.ipv6.conf.all.disable_ipv6=1")
        self._prepare()
        self.macs = {}
        for name in interfaces:
            connect(self.gateway, name, self.hosts, name)
            self.hosts.run("ip", "link", "set", name, "arp", "off")
            self.macs[name] = bytes.fromhex(self.gateway.mac(name).replace(":", ""))
        with self.hosts.network():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)

    def _prepare(self):
        """Hook that runs before the interfaces exist."""

    def remove(self):
        self.socket.close()
        self.gateway.remove()
        self.hosts.remove()

    def play(self, world, scenarios):
        """The results of all scenarios. The result of a scenario is a list with an entry per step: a list of
        (interface, datagram), or `None` if the step could not be sent."""
        return self.play_changed([world], scenarios)

    def play_changed(self, worlds, scenarios):
        """Like `play`, but with the steps of a scenario divided into a part for each world. Each part is processed
        in its own world."""
        self.counts = []
        played = [(scenario, Seen(scenario), []) for scenario in scenarios]
        for part, world in enumerate(worlds, 1):
            if world is not self.world:
                self.configure(world)
                self.world = world
            for number, (scenario, seen, outputs) in enumerate(played):
                # Scenarios share no hosts, so all scenarios can continue.
                if part == 1 and (number == 0 or len(worlds) == 1):
                    self._begin()
                self._steps(scenario.steps[len(outputs) : len(scenario.steps) * part // len(worlds)], seen, outputs)
            self.counts.append(self.counted())
        return [outputs for _, _, outputs in played]

    def configure(self, world):
        """Load a world's rules."""
        raise NotImplementedError

    def _begin(self):
        """Hook that runs before a scenario."""

    def counted(self):
        """Packets and bytes by name of rule since the world was loaded."""
        return {}

    def _steps(self, steps, seen, result):
        for step in steps:
            made = seen.frames(step)
            if made is None:
                result.append(None)
                continue
            outputs = whole(self._exchange(*made))
            seen.note(step, outputs)
            result.append(outputs)

    def _exchange(self, interface, datagrams):
        for datagram in datagrams:
            self._send(interface, datagram)
        outputs = []
        for marker in self._markers(interface):
            self._send(*marker)
            outputs += self._until_marked()
        return outputs

    def _markers(self, interface):
        """Interfaces and packets of markers. Each marker is sent when the previous marker has returned."""
        raise NotImplementedError

    def _until_marked(self):
        outputs = []
        while True:
            if not select.select([self.socket], [], [], 10)[0]:
                raise AssertionError("the marker did not come back")
            frame, address = self.socket.recvfrom(65535)
            # Multicast group memberships are internal to the gateway.
            if frame[12:14] not in (b"\x08\x00", b"\x86\xdd") or frame[0] & 1:
                continue
            datagram = packet.read(frame[14:])
            if datagram.protocol == packet.UDP and datagram.payload[8:] == MARK:
                return outputs
            outputs.append((address[0], datagram))

    def _send(self, interface, datagram):
        frame = self.macs[interface] + bytes(6) + datagram.TYPE + bytes(datagram)
        self.socket.sendto(frame, (interface, int.from_bytes(datagram.TYPE)))
