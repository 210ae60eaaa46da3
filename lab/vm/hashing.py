"""The hash with which virtio selects a queue. The module reads key and table from the emulated device, and computes
the hash."""

import ipaddress
import os
import struct
from dataclasses import dataclass

from lab import waiting

# Format after the name of the section in a device's saved state: version, three flags, hashed packet types, number of
# table entries, and queue of unhashed packets. The key and the table follow.
HEAD = ">I???IHH"
KEY_BYTES = 40
# QEMU saves the states of the devices last, after the memory.
END_BYTES = 8 << 20
# The flags VIRTIO_NET_RSS_HASH_TYPE_ of IPv4, TCPv4, UDPv4, IPv6, TCPv6 and UDPv6.
ALL_TYPES = 0x3F


@dataclass(frozen=True)
class Hashing:
    """The queue selection of a device."""

    enabled: bool
    types: int
    key: bytes
    table: tuple

    def queue(self, source, source_port, destination, destination_port):
        """The queue of a TCP or UDP packet."""
        addresses = b"".join(ipaddress.ip_address(address).packed for address in (source, destination))
        value = toeplitz(self.key, addresses + struct.pack(">HH", source_port, destination_port))
        return self.table[value % len(self.table)]


def toeplitz(key, data):
    """The Toeplitz hash: the exclusive or of the 32 key bits at the position of each set bit of the input."""
    bits = int.from_bytes(key, "big")
    width = 8 * len(key)
    value = 0
    for place in range(8 * len(data)):
        if data[place // 8] >> (7 - place % 8) & 1:
            value ^= bits >> (width - 32 - place) & 0xFFFFFFFF
    return value


def read(guest, cards):
    """The queue selection of a guest's cards, read from QEMU's migration state."""
    path = os.path.join(guest.folder, "state")
    guest.qmp("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
    guest.qmp("stop")
    try:
        guest.qmp("migrate", uri=f"exec:tail -c {END_BYTES} >{path}")

        def saved():
            answer = guest.qmp("query-migrate")
            assert answer.get("status") != "failed", answer
            return answer.get("status") == "completed"

        waiting.until(saved, "the state to be saved", 60)
        with open(path, "rb") as file:
            state = file.read()
    finally:
        guest.qmp("cont")
    os.remove(path)
    return [_hashing(state, guest.address(card)) for card in cards]


def _hashing(state, address):
    device = state.index(f"{address}/virtio-net".encode())
    name = b"virtio-net-device/rss"
    place = state.index(name, device) + len(name)
    version, enabled, _, _, types, entries, _ = struct.unpack_from(HEAD, state, place)
    assert version == 1, f"version {version} of the state is not known"
    place += struct.calcsize(HEAD)
    key = state[place : place + KEY_BYTES]
    table = struct.unpack_from(f">{entries}H", state, place + KEY_BYTES)
    return Hashing(enabled, types, key, table)
