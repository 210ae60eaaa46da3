"""IPv4 datagrams as bytes: made and read without a packet library, thousands a second."""

import dataclasses
import socket
import struct

ICMP, TCP, UDP = 1, 6, 17
PORTS = (TCP, UDP)
QUERIES = {8: 0, 13: 14, 15: 16, 17: 18}
ERRORS = (3, 4, 5, 11, 12)
DF, MF = 0x4000, 0x2000
HEADER = struct.Struct("!BBHHHBBH4s4s")


def fold(total):
    """A sum of 16-bit words, carries added: 1 to 65535, or 0 where all words are."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def words(data):
    """The sum of 16-bit words that checksums are made of."""
    if len(data) % 2:
        data += b"\0"
    return sum(struct.unpack(f"!{len(data) // 2}H", data))


def checksum(data):
    """RFC 1071."""
    return ~fold(words(data)) & 0xFFFF


def pseudo(source, destination, protocol, length):
    """The sum of a pseudo-header."""
    return words(socket.inet_aton(source) + socket.inet_aton(destination)) + protocol + length


@dataclasses.dataclass(frozen=True)
class Datagram:
    """An IPv4 datagram. `flags` holds DF and MF, `offset` is in bytes; `tail` is what the packet had behind its end."""

    source: str
    destination: str
    protocol: int
    payload: bytes
    ttl: int = 64
    tos: int = 0
    identification: int = 0
    flags: int = 0
    offset: int = 0
    options: bytes = b""
    checksum: int | None = None
    length: int | None = None

    def __bytes__(self):
        header_length = 20 + len(self.options)
        length = header_length + len(self.payload) if self.length is None else self.length
        fields = (
            0x40 | header_length // 4, self.tos, length, self.identification, self.flags | self.offset // 8,
            self.ttl, self.protocol,
        )
        ends = (socket.inet_aton(self.source), socket.inet_aton(self.destination))
        value = self.checksum
        if value is None:
            value = checksum(HEADER.pack(*fields, 0, *ends) + self.options)
        return HEADER.pack(*fields, value, *ends) + self.options + self.payload

    def but(self, **changes):
        """The same with other fields."""
        return dataclasses.replace(self, **changes)

    def made(self, **changes):
        """The same with other fields, and the length and header checksum that belong to them."""
        result = self.but(**{"length": None, "checksum": None, **changes})
        length, value = struct.unpack("!H6xH", bytes(result)[2:12])
        return result.but(length=length, checksum=value)

    @property
    def whole(self):
        """Not a fragment."""
        return not self.flags & MF and self.offset == 0

    @property
    def ports(self):
        """Source and destination port; of an ICMP query its identifier twice; none where there are none."""
        if self.offset:
            return None
        if self.protocol in PORTS and len(self.payload) >= 4:
            return struct.unpack("!HH", self.payload[:4])
        if self.is_query and len(self.payload) >= 6:
            return struct.unpack("!H", self.payload[4:6]) * 2
        return None

    @property
    def _is_message(self):
        return self.protocol == ICMP and self.offset == 0 and len(self.payload) > 0

    @property
    def is_query(self):
        """An ICMP query or the answer to one."""
        return self._is_message and self.payload[0] in (*QUERIES, *QUERIES.values())

    @property
    def is_error(self):
        """An ICMP error."""
        return self._is_message and self.payload[0] in ERRORS

    def __str__(self):
        text = f"{self.source} > {self.destination} protocol {self.protocol} ttl {self.ttl} tos {self.tos:#x}"
        text += f" id {self.identification} flags {self.flags:#x} offset {self.offset} length {len(self.payload)}"
        if self.options:
            text += f" options {self.options.hex()}"
        if self.is_error:
            text += f" type {self.payload[0]} code {self.payload[1]} [{read(self.payload[8:], quoted=True)}]"
        elif self.offset == 0:
            text += f" {self.payload[:24].hex()}"
        return text


def read(data, quoted=False):
    """The datagram of these bytes; `ValueError` where it is none. A quoted one may be cut short."""
    if len(data) < 20 or data[0] >> 4 != 4:
        raise ValueError(f"no IPv4 header: {data[:20].hex()}")
    first, tos, length, identification, fragment, ttl, protocol, value, source, destination = HEADER.unpack(data[:20])
    end = (first & 15) * 4
    if end < 20 or len(data) < end or length < end or (len(data) < length and not quoted):
        raise ValueError(f"lengths that do not fit: {data[:20].hex()}")
    return Datagram(
        socket.inet_ntoa(source), socket.inet_ntoa(destination), protocol, data[end:length], ttl, tos, identification,
        fragment & 0xE000, (fragment & 0x1FFF) * 8, data[20:end], value, length,
    )


def faults(datagram):
    """What is wrong with the checksums of a datagram; of a fragment that of the header alone."""
    found = []
    if datagram.checksum != datagram.made().checksum:
        found.append("header checksum")
    payload = datagram.payload
    if not datagram.whole:
        return found
    if datagram.protocol == ICMP and fold(words(payload)) != 0xFFFF:
        found.append("ICMP checksum")
    if datagram.protocol in PORTS and not (datagram.protocol == UDP and payload[6:8] == b"\0\0"):
        total = words(payload) + pseudo(datagram.source, datagram.destination, datagram.protocol, len(payload))
        if fold(total) != 0xFFFF:
            found.append("transport checksum")
    return found


def _sealed(datagram, at, fault):
    """The datagram with the transport checksum that belongs at an offset of its payload."""
    body = bytearray(datagram.payload)
    total = words(bytes(body))
    if datagram.protocol in PORTS:
        total += pseudo(datagram.source, datagram.destination, datagram.protocol, len(body))
    value = ~fold(total) & 0xFFFF
    if datagram.protocol == UDP and value == 0:
        value = 0xFFFF
    if fault:
        value ^= 0x0101
    body[at : at + 2] = value.to_bytes(2, "big")
    return datagram.but(payload=bytes(body))


def tcp(ends, control, sequence, acknowledgment, data=b"", window=8192, tcp_options=b"", fault=False, **fields):
    """A TCP segment between two ends: ((address, port), (address, port))."""
    (source, from_port), (destination, to_port) = ends
    offset = (20 + len(tcp_options)) // 4
    header = struct.pack(
        "!HHIIBBHHH", from_port, to_port, sequence & 0xFFFFFFFF, acknowledgment & 0xFFFFFFFF, offset << 4, control,
        window, 0, 0,
    )
    return _sealed(Datagram(source, destination, TCP, header + tcp_options + data, **fields), 16, fault)


def udp(ends, data=b"", sums=True, fault=False, **fields):
    """A UDP datagram; without a checksum where `sums` is false."""
    (source, from_port), (destination, to_port) = ends
    header = struct.pack("!HHHH", from_port, to_port, 8 + len(data), 0)
    datagram = Datagram(source, destination, UDP, header + data, **fields)
    return _sealed(datagram, 6, fault) if sums else datagram


def query(ends, kind, sequence, data=b"", fault=False, **fields):
    """An ICMP query: of the ends' ports the sender's is its identifier."""
    (source, identifier), (destination, _) = ends
    header = struct.pack("!BBHHH", kind, 0, 0, identifier, sequence)
    return _sealed(Datagram(source, destination, ICMP, header + data, **fields), 2, fault)


def error(source, destination, kind, code, parameter, quote, fault=False, **fields):
    """An ICMP error that quotes these bytes."""
    header = struct.pack("!BBHI", kind, code, 0, parameter)
    return _sealed(Datagram(source, destination, ICMP, header + quote, **fields), 2, fault)


def other(source, destination, protocol, data, **fields):
    """A datagram of a protocol without ports. Linux looks for a checksum in it before it tells its sender anything."""
    return _sealed(Datagram(source, destination, protocol, b"\0\0" + data, **fields), 0, False)


def fragments(datagram, size):
    """The datagram in pieces of `size` bytes, a multiple of 8."""
    payload = datagram.payload
    return [
        datagram.but(payload=payload[at : at + size], offset=at, flags=MF if at + size < len(payload) else 0)
        for at in range(0, len(payload), size)
    ]


def reassembled(datagrams):
    """Whole datagrams, and those that their fragments make, in the order of the last of each."""
    result, parts = [], {}
    for datagram in datagrams:
        if datagram.whole:
            result.append(datagram)
            continue
        key = (datagram.source, datagram.destination, datagram.protocol, datagram.identification)
        pieces = parts.setdefault(key, {})
        pieces[datagram.offset] = datagram
        last = pieces[max(pieces)]
        payload = b"".join(pieces[at].payload for at in sorted(pieces))
        complete = not last.flags & MF and len(payload) == last.offset + len(last.payload)
        if complete and 0 in pieces:
            del parts[key]
            head = pieces[0]
            result.append(head.made(payload=payload, flags=head.flags & ~MF))
    return result + [piece for pieces in parts.values() for piece in pieces.values()]
