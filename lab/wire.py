"""Raw frames on a host's interface, built and read with scapy."""

import logging
import select
import socket
import struct
import time

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment  # noqa: E402,F401
from scapy.layers.inet6 import (  # noqa: E402,F401
    ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6ND_RA, ICMPv6ND_RS,
    ICMPv6NDOptPrefixInfo, ICMPv6NDOptSrcLLAddr, ICMPv6PacketTooBig, ICMPv6TimeExceeded, IPv6, IPv6ExtHdrFragment,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether  # noqa: E402,F401
from scapy.packet import Raw  # noqa: E402,F401

from lab import waiting  # noqa: E402

ETH_P_ALL = 3
SOL_PACKET, PACKET_AUXDATA = 263, 8
# `struct tpacket_auxdata`: status, three lengths and offsets, and the tag.
AUXDATA = "IIIHHHH"
TAG_IS_VALID, TYPE_IS_VALID = 0x10, 0x40


class Wire:
    """An interface at the level of frames. It receives arriving frames and also frames that the host itself sends.

    The kernel removes the outer tag of a frame and reports it as auxiliary data. With `tags`, the tag is restored.
    """

    def __init__(self, host, interface="eth0", tags=False):
        self.mac = host.mac(interface)
        with host.network():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            if tags:
                self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            self.socket.bind((interface, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        """Send frames unchanged. A full veth rejects frames until its receiver is scheduled, so sending is repeated."""
        for frame in frames:
            waiting.until(lambda data=bytes(frame): self.socket.send(data), "room for a frame")

    def receive(self, timeout):
        """The next received frame, or nothing."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return None
            data, beside, _, address = self.socket.recvmsg(65535, socket.CMSG_SPACE(struct.calcsize(AUXDATA)))
            if address[2] != socket.PACKET_OUTGOING:
                return Ether(data[:12] + _tag(beside) + data[12:])

    def expect(self, wanted, timeout=5.0):
        """The next received frame for which `wanted` is true. The error of a failure contains the received frames."""
        others = []
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            frame = self.receive(left)
            if frame is None:
                break
            if wanted(frame):
                return frame
            others.append(frame.summary())
        raise waiting.Timeout(f"no such frame in {timeout:g} s; came instead: {others}")

    def until(self, last, timeout=5.0):
        """All frames received before the first frame for which `last` is true."""
        before = []

        def seen(frame):
            if last(frame):
                return True
            before.append(frame)
            return False

        self.expect(seen, timeout)
        return before


def _tag(beside):
    """The tag that the kernel reports in the auxiliary data of a frame."""
    for _, kind, value in beside:
        if kind == PACKET_AUXDATA:
            status, *_, tag, ethertype = struct.unpack(AUXDATA, value[: struct.calcsize(AUXDATA)])
            if status & TAG_IS_VALID:
                return struct.pack(">HH", ethertype if status & TYPE_IS_VALID else 0x8100, tag)
    return b""


def checksums_hold(packet):
    """Whether every checksum of an IP packet equals scapy's result."""
    again = packet.copy()
    layer = again
    while layer is not None and not isinstance(layer, Raw):
        for field in ("chksum", "cksum"):
            if layer.fields.get(field) is not None:
                delattr(layer, field)
        # An ICMP error quotes a truncated packet, so the transport checksum of the quoted packet can't be computed.
        if isinstance(layer, (ICMP, ICMPv6DestUnreach, ICMPv6PacketTooBig, ICMPv6TimeExceeded)):
            break
        layer = layer.payload if layer.payload else None
    return bytes(again) == bytes(packet)
