"""Builds and parses IPv4 and IPv6 datagrams without a packet library, at thousands per second."""

import dataclasses
import socket
import struct

ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
PORTS = (TCP, UDP)
# ICMP types of both families. A type of one family has no meaning in the other family.
QUERIES = {8: 0, 13: 14, 15: 16, 17: 18, 128: 129}
DF, MF = 0x4000, 0x2000
HEADER = struct.Struct("!BBHHHBBH4s4s")
HEADER6 = struct.Struct("!IHBB16s16s")
# Extension headers of IPv6: hop-by-hop options, destination options, and fragment.
HOPS, FRAGMENT, DESTINATION = 0, 44, 60


def fold(total):
    """A sum of 16-bit words with carries added. The sum is 1 to 65535, or 0 if all words are 0."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def words(data):
    """The sum of 16-bit words from which checksums are computed."""
    if len(data) % 2:
        data += b"\0"
    return sum(struct.unpack(f"!{len(data) // 2}H", data))


def checksum(data):
    """The Internet checksum (RFC 1071)."""
    return ~fold(words(data)) & 0xFFFF


def number(address):
    """An address as bytes."""
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def pseudo(source, destination, protocol, length):
    """The sum of a pseudo-header."""
    return words(number(source) + number(destination)) + protocol + length


@dataclasses.dataclass(frozen=True)
class Datagram:
    """An IPv4 datagram. `flags` contains DF and MF, `offset` is in bytes, and `tail` contains bytes after the end of
    the datagram."""

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

    TYPE = b"\x08\x00"
    MESSAGES = ICMP
    # Fields that forwarding does not change, except for the TTL.
    KEPT = ("ttl", "tos", "identification", "flags", "offset", "options")

    @staticmethod
    def tells(kind):
        """Whether ICMP messages of a type are errors."""
        return kind in (3, 4, 5, 11, 12)

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
        """A copy with the given fields changed."""
        return dataclasses.replace(self, **changes)

    def made(self, **changes):
        """A copy with the given fields changed, and with the matching length and header checksum."""
        result = self.but(**{"length": None, "checksum": None, **changes})
        length, value = struct.unpack("!H6xH", bytes(result)[2:12])
        return result.but(length=length, checksum=value)

    @property
    def before(self):
        """Number of bytes before the payload of the reassembled datagram."""
        return 20 + len(self.options)

    @property
    def whole(self):
        """Whether the datagram is not a fragment."""
        return not self.flags & MF and self.offset == 0

    @property
    def ports(self):
        """Source and destination port. The result for an ICMP query contains its identifier twice; the result for
        other protocols is empty."""
        if self.offset:
            return None
        if self.protocol in PORTS and len(self.payload) >= 4:
            return struct.unpack("!HH", self.payload[:4])
        if self.is_query and len(self.payload) >= 6:
            return struct.unpack("!H", self.payload[4:6]) * 2
        return None

    @property
    def _is_message(self):
        return self.protocol == self.MESSAGES and self.offset == 0 and len(self.payload) > 0

    @property
    def is_query(self):
        """Whether the datagram is an ICMP query or an answer to a query."""
        return self._is_message and self.payload[0] in (*QUERIES, *QUERIES.values())

    @property
    def is_error(self):
        """Whether the datagram is an ICMP error."""
        return self._is_message and self.tells(self.payload[0])

    def __str__(self):
        text = f"{self.source} > {self.destination} protocol {self.protocol} ttl {self.ttl} tos {self.tos:#x}"
        text += f" id {self.identification} flags {self.flags:#x} offset {self.offset} length {len(self.payload)}"
        if self.options:
            text += f" options {self.options}"
        if self.is_error:
            text += f" type {self.payload[0]} code {self.payload[1]} [{read(self.payload[8:], quoted=True)}]"
        elif self.offset == 0:
            text += f" {self.payload[:24].hex()}"
        return text


@dataclasses.dataclass(frozen=True)
class Datagram6(Datagram):
    """An IPv6 datagram. `tos` is the traffic class, `ttl` is the hop limit, and `options` contains number and body
    of each header before the fragment header. `atomic` marks a datagram with a fragment header that is not a
    fragment (RFC 6946)."""

    options: tuple = ()
    label: int = 0
    atomic: bool = False

    TYPE = b"\x86\xdd"
    MESSAGES = ICMPV6
    KEPT = (*Datagram.KEPT, "label", "atomic")

    @staticmethod
    def tells(kind):
        return kind < 128

    def __bytes__(self):
        chain = [(kind, bytes([len(body) // 8]) + body) for kind, body in self.options]
        if self.atomic or not self.whole:
            place = self.offset | bool(self.flags & MF)
            chain.append((FRAGMENT, struct.pack("!BHI", 0, place, self.identification)))
        kinds = [*(kind for kind, _ in chain), self.protocol]
        rest = b"".join(bytes([after]) + body for after, (_, body) in zip(kinds[1:], chain)) + self.payload
        length = len(rest) if self.length is None else self.length
        first = 6 << 28 | self.tos << 20 | self.label
        return HEADER6.pack(first, length, kinds[0], self.ttl, number(self.source), number(self.destination)) + rest

    def made(self, **changes):
        result = self.but(**{"length": None, **changes})
        return result.but(length=len(bytes(result)) - 40)

    @property
    def before(self):
        return 40 + sum(2 + len(body) for _, body in self.options) + 8 * self.atomic

def read(data, quoted=False):
    """Parse a datagram, or raise `ValueError` if it is invalid. A quoted datagram may be truncated."""
    if len(data) >= 40 and data[0] >> 4 == 6:
        return _read6(data, quoted)
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


def _read6(data, quoted):
    first, length, protocol, ttl, source, destination = HEADER6.unpack(data[:40])
    if len(data) < 40 + length and not quoted:
        raise ValueError(f"lengths that do not fit: {data[:40].hex()}")
    at, options, place, identification, atomic = 40, [], 0, 0, False
    while protocol in (HOPS, DESTINATION, FRAGMENT) and place < 8 and len(data) >= at + 8:
        kind, protocol = protocol, data[at]
        if kind == FRAGMENT:
            place, identification = struct.unpack_from("!HI", data, at + 2)
            atomic = place & 0xFFF9 == 0
            at += 8
        else:
            end = at + 8 * (data[at + 1] + 1)
            options.append((kind, data[at + 2 : end]))
            at = end
    return Datagram6(
        socket.inet_ntop(socket.AF_INET6, source), socket.inet_ntop(socket.AF_INET6, destination), protocol,
        data[at : 40 + length], ttl, first >> 20 & 0xFF, identification, MF * (place & 1), place & 0xFFF8, tuple(options),
        None, length, first & 0xFFFFF, atomic,
    )


def _covered(datagram):
    """The sum of the payload and of the pseudo-header that a transport checksum covers."""
    total = words(datagram.payload)
    if datagram.protocol in PORTS or isinstance(datagram, Datagram6):
        total += pseudo(datagram.source, datagram.destination, datagram.protocol, len(datagram.payload))
    return total


def faults(datagram):
    """Wrong checksums of a datagram. In a fragment, only the header checksum is verified."""
    found = []
    if datagram.checksum != datagram.made().checksum:
        found.append("header checksum")
    summed = datagram.whole and datagram.protocol in (*PORTS, datagram.MESSAGES)
    none = datagram.protocol == UDP and datagram.payload[6:8] == b"\0\0"
    if summed and not none and fold(_covered(datagram)) != 0xFFFF:
        found.append("transport checksum")
    return found


def _sealed(datagram, at, fault):
    """The datagram with the correct transport checksum at an offset of its payload."""
    body = bytearray(datagram.payload)
    value = ~fold(_covered(datagram)) & 0xFFFF
    if datagram.protocol == UDP and value == 0:
        value = 0xFFFF
    if fault:
        value ^= 0x0101
    body[at : at + 2] = value.to_bytes(2, "big")
    return datagram.but(payload=bytes(body))


def _datagram(source, destination, protocol, payload, **fields):
    """A datagram of the family of its addresses."""
    return (Datagram6 if ":" in source else Datagram)(source, destination, protocol, payload, **fields)


def tcp(ends, control, sequence, acknowledgment, data=b"", window=8192, tcp_options=b"", fault=False, **fields):
    """A TCP segment between two ends: ((address, port), (address, port))."""
    (source, from_port), (destination, to_port) = ends
    offset = (20 + len(tcp_options)) // 4
    header = struct.pack(
        "!HHIIBBHHH", from_port, to_port, sequence & 0xFFFFFFFF, acknowledgment & 0xFFFFFFFF, offset << 4, control,
        window, 0, 0,
    )
    return _sealed(_datagram(source, destination, TCP, header + tcp_options + data, **fields), 16, fault)


def udp(ends, data=b"", sums=True, fault=False, **fields):
    """A UDP datagram, without a checksum if `sums` is false."""
    (source, from_port), (destination, to_port) = ends
    header = struct.pack("!HHHH", from_port, to_port, 8 + len(data), 0)
    datagram = _datagram(source, destination, UDP, header + data, **fields)
    return _sealed(datagram, 6, fault) if sums else datagram


def query(ends, kind, sequence, data=b"", fault=False, **fields):
    """An ICMP query. The port of the sender is used as the identifier."""
    (source, identifier), (destination, _) = ends
    header = struct.pack("!BBHHH", kind, 0, 0, identifier, sequence)
    return _message(source, destination, header + data, fault, fields)


def _message(source, destination, payload, fault, fields):
    protocol = ICMPV6 if ":" in source else ICMP
    return _sealed(_datagram(source, destination, protocol, payload, **fields), 2, fault)


def error(source, destination, kind, code, parameter, quote, fault=False, **fields):
    """An ICMP error that quotes these bytes."""
    header = struct.pack("!BBHI", kind, code, 0, parameter)
    return _message(source, destination, header + quote, fault, fields)


def other(source, destination, protocol, data, **fields):
    """A datagram of a protocol without ports. Linux verifies the checksum of the datagram before it sends an error
    to its sender."""
    return _sealed(_datagram(source, destination, protocol, b"\0\0" + data, **fields), 0, False)


def fragments(datagram, size):
    """The datagram, split into fragments of `size` bytes, which must be a multiple of 8."""
    payload = datagram.payload
    return [
        datagram.but(payload=payload[at : at + size], offset=at, flags=MF if at + size < len(payload) else 0)
        for at in range(0, len(payload), size)
    ]


def reassembled(datagrams):
    """Whole and reassembled datagrams, in the order in which they were completed."""
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
