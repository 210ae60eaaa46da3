"""Random frames: valid frames of every kind, and variants with flipped bits, truncated or concatenated."""

import random
import threading
import time

from lab.topology import FORWARDED, POOL
from lab.wire import (
    ARP, ICMP, IP, TCP, UDP, Dot1Q, Ether, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6ND_RS,
    ICMPv6PacketTooBig, IPv6, IPv6ExtHdrFragment, Raw, Wire, fragment,
)

FRAMES_AT_ONCE = 32
TEMPLATES = 400


class Noise:
    """Sends random frames from one host until it is stopped. The same seed produces the same frames."""

    def __init__(self, host, interface, gateway_mac, source, source6, targets, targets6, seed, rate):
        self.random = random.Random(seed)
        self.wire = Wire(host, interface)
        self.gateway_mac = gateway_mac
        self.source, self.source6 = source, source6
        self.targets, self.targets6 = targets, targets6
        self.pause = FRAMES_AT_ONCE / rate
        self.sent = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def start(self):
        self.thread.start()

    def stop(self):
        """Stop sending, and return the number of sent frames."""
        self.stopped.set()
        self.thread.join()
        self.wire.socket.close()
        return self.sent

    def _run(self):
        templates = []
        while not self.stopped.is_set():
            # Only a few frames are built at a time, because scapy is slow. Each frame is sent many times with changes.
            if len(templates) < TEMPLATES:
                templates += self._frames()
            for _ in range(FRAMES_AT_ONCE):
                try:
                    self.wire.socket.send(self._spoil(self.random.choice(templates)))
                    self.sent += 1
                except OSError:
                    # The frame was not sent, because it exceeds the link's MTU or the queue is full.
                    pass
            self.stopped.wait(self.pause)

    def _frames(self):
        """Frames of one random kind."""
        pick = self.random
        port, peer = pick.randrange(1024, 65536), pick.choice([53, 80, 443, 5201, pick.randrange(65536)])
        ip = IP(src=self.source, dst=pick.choice(self.targets), id=pick.randrange(65536), ttl=pick.choice([1, 2, 64]))
        ip6 = IPv6(src=self.source6, dst=pick.choice(self.targets6), hlim=pick.choice([1, 2, 64, 255]))
        udp, content = UDP(sport=port, dport=peer), Raw(pick.randbytes(pick.randrange(0, 1400)))
        tcp = TCP(sport=port, dport=peer, flags=pick.choice(["S", "A", "PA", "FA", "R", "RA", "SA"]))
        quoted = IP(src=pick.choice(POOL), dst=pick.choice(self.targets)) / udp
        kinds = [
            lambda: [ip / udp / content],
            lambda: [ip / tcp / content],
            lambda: [ip / ICMP(id=port) / content],
            lambda: [ip / ICMP(type=3, code=pick.choice([1, 3, 4]), nexthopmtu=1280) / quoted],
            lambda: fragment(ip / udp / Raw(pick.randbytes(4000)), fragsize=pick.choice([64, 512, 1400])),
            lambda: [ip6 / udp / content],
            lambda: [ip6 / tcp],
            lambda: [ip6 / ICMPv6EchoRequest(id=port) / content],
            lambda: [ip6 / IPv6ExtHdrFragment(offset=pick.randrange(200), m=1, id=port) / content],
            lambda: [ip6 / ICMPv6PacketTooBig(mtu=1280) / IPv6(src=ip6.dst, dst=ip6.src) / udp],
            lambda: [ip6 / ICMPv6ND_NS(tgt=pick.choice(self.targets6))],
            lambda: [ip6 / ICMPv6ND_NA(tgt=pick.choice(self.targets6))],
            lambda: [ip6 / ICMPv6ND_RS()],
            lambda: [ARP(hwsrc=self.wire.mac, psrc=self.source, pdst=pick.choice(self.targets), op=pick.choice([1, 2]))],
            lambda: [Dot1Q(vlan=pick.randrange(4096)) / ip / udp],
        ]
        return [bytes(Ether(src=self.wire.mac, dst=self.gateway_mac) / packet) for packet in pick.choice(kinds)()]

    def _spoil(self, frame):
        """Half of the frames unchanged, and the other half with a fault."""
        pick = self.random
        choice = pick.randrange(8)
        if choice < 4:
            return frame
        data = bytearray(frame)
        if choice < 6:
            # The link-layer addresses stay unchanged, so that the frame arrives.
            for _ in range(pick.randrange(1, 8)):
                data[pick.randrange(12, len(data))] = pick.randrange(256)
        elif choice == 6:
            del data[pick.randrange(14, len(data)) :]
        else:
            data += pick.randbytes(pick.randrange(1, 200))
        return bytes(data[:1514])


def everywhere(topology, seed, rate):
    """Noise from inside and outside. `rate` is the total number of frames per second, half of which come from
    outside."""
    targets = [
        topology.server.address, topology.alice.address, topology.bob.address, topology.bob.gateway, FORWARDED,
        "192.168.2.99", "192.0.2.1", "224.0.0.1", "255.255.255.255", *POOL[:4],
    ]
    targets6 = [
        topology.server.address6, topology.alice.address6, topology.bob.address6, topology.bob.gateway6,
        "2001:db8:2::99", "2001:db8:dead::1", "ff02::1", "fe80::1",
    ]
    places = [
        (topology.alice, topology.alice.gateway, topology.alice.address, topology.alice.address6, rate // 2),
        (topology.upstream, "198.51.100.2", topology.server.address, topology.server.address6, rate // 2),
    ]
    return [
        Noise(host, "eth0", host.mac_of(gateway), source, source6, targets, targets6, seed + number, share)
        for number, (host, gateway, source, source6, share) in enumerate(places)
    ]


def run_for(noises, seconds, watch):
    """Send noise for some seconds, calling `watch` about once per second. Returns the number of sent frames."""
    for noise in noises:
        noise.start()
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            watch()
            noises[0].stopped.wait(min(1.0, left))
    finally:
        sent = sum(noise.stop() for noise in noises)
    return sent
