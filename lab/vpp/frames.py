"""Sessions of the measurement, their frames of 60 bytes, and files of such frames."""

import array
import struct

from lab.vpp.fault import Fault

FRAME = 60
TTL = 64
TCP, UDP = 6, 17
SYN, ACK = 0x02, 0x10

# Files in the format of libpcap: the header of the file, and the header of a record with the lengths of the frame.
FILE_HEADER = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
LENGTHS = struct.pack("<II", FRAME, FRAME)
RECORD_HEADER = bytes(8) + LENGTHS
RECORD = len(RECORD_HEADER) + FRAME

# The first addresses of the clients, of the servers and of the NAT pool: 10.0.0.1, 198.18.0.0 and 203.0.113.1.
CLIENTS, SERVERS, POOL = 0x0A000001, 0xC6120000, 0xCB007101
POOL_ADDRESSES = 64
SERVER_PORT = 443
SESSIONS_PER_CLIENT = 16
# Each session of a client has its own range of source ports.
FIRST_PORT, PORT_RANGE = 10000, 3000


class Sessions:
    """Addresses and ports of all sessions. Sessions with an even number are TCP, the others UDP."""

    def __init__(self, count, random):
        self.count = count
        clients, servers, ports = array.array("I"), array.array("I"), array.array("H")
        for number in range(count):
            clients.append(CLIENTS + number // SESSIONS_PER_CLIENT)
            servers.append(SERVERS + random.randrange(1, 65535))
            ports.append(FIRST_PORT + number % SESSIONS_PER_CLIENT * PORT_RANGE + random.randrange(PORT_RANGE))
        self.clients, self.servers, self.ports = clients, servers, ports
        # The first packets show the outside addresses and ports that VPP has allocated.
        self.outside_addresses = array.array("I", bytes(4 * count))
        self.outside_ports = array.array("H", bytes(2 * count))

    @property
    def tcp(self):
        """Number of TCP sessions."""
        return (self.count + 1) // 2

    def inside(self, number):
        """Source, destination, source port and destination port of a packet of the client, before translation."""
        return self.clients[number], self.servers[number], self.ports[number], SERVER_PORT

    def outside(self, number):
        """The translated addresses and ports of a packet that the client sends."""
        return self.outside_addresses[number], self.servers[number], self.outside_ports[number], SERVER_PORT

    def reply(self, number):
        """The addresses and ports of a packet of the server, before translation."""
        return self.servers[number], self.outside_addresses[number], SERVER_PORT, self.outside_ports[number]

    def translated_reply(self, number):
        """The translated addresses and ports of a packet that the server sends."""
        return self.servers[number], self.clients[number], SERVER_PORT, self.ports[number]

    def learn(self, number, frame):
        """Store the outside address and port of a session, read from its first translated frame."""
        self.outside_addresses[number], = struct.unpack_from(">I", frame, 26)
        self.outside_ports[number], = struct.unpack_from(">H", frame, 34)
        return POOL <= self.outside_addresses[number] < POOL + POOL_ADDRESSES


class Template:
    """Frames of one protocol in one direction; addresses, ports and the number of the session vary.

    The last four bytes of the payload are the number of the session.
    """

    def __init__(self, protocol, source_mac, destination_mac, flags, ttl=TTL):
        self.protocol = protocol
        # Ethernet and the IPv4 header up to its checksum: 46 bytes, no fragments.
        self.head = destination_mac + source_mac + bytes.fromhex("08004500002e00004000") + bytes([ttl, protocol])
        if protocol == TCP:
            acknowledged = 0x22222222 if flags & ACK else 0
            self.middle = struct.pack(">IIBBH", 0x11111111, acknowledged, 5 << 4, flags, 65535)
        else:
            self.middle = struct.pack(">H", 26)
        self.layout = struct.Struct(f">24sHIIHH{len(self.middle)}sH{16 - len(self.middle)}xI")
        # A ones' complement sum of 16-bit words is the remainder of the whole number by 0xffff.
        self.header_sum = int.from_bytes(self.head[14:], "big")
        self.transport_sum = protocol + 26 + int.from_bytes(self.middle, "big")

    def frame(self, number, flow):
        """The frame of a session. `flow` is source, destination, source port and destination port."""
        source, destination, source_port, destination_port = flow
        header_checksum = -(self.header_sum + source + destination) % 0xFFFF
        checksum = -(self.transport_sum + source + destination + source_port + destination_port + number) % 0xFFFF
        if self.protocol == UDP:
            # Zero means that a datagram has no checksum.
            checksum = checksum or 0xFFFF
        return self.layout.pack(self.head, header_checksum, *flow, self.middle, checksum, number)

    def difference(self, frame, flow):
        """The first part of a frame that differs from the expected one, or nothing."""
        head, _, *captured, middle, checksum, _ = self.layout.unpack(frame)
        if captured != list(flow):
            return "addresses or ports"
        if head != self.head or middle != self.middle:
            return "MAC addresses, TTL or other header fields"
        if int.from_bytes(frame[14:34], "big") % 0xFFFF:
            return "IPv4 checksum"
        if (int.from_bytes(frame[26:], "big") + self.protocol + 26) % 0xFFFF or (self.protocol == UDP and not checksum):
            return "transport checksum"
        return None


class Frames:
    """Frames of TCP and UDP sessions in one direction."""

    def __init__(self, source_mac, destination_mac, flags, ttl=TTL):
        self.templates = [Template(protocol, source_mac, destination_mac, flags, ttl) for protocol in (TCP, UDP)]

    def write(self, path, numbers, flow):
        """Write one frame per session, in the given order. `flow` returns the addresses and ports of a session."""
        with open(path, "wb") as file:
            file.write(FILE_HEADER)
            for number in numbers:
                file.write(RECORD_HEADER + self.templates[number & 1].frame(number, flow(number)))

    def verify(self, path, count, flow, learn=None):
        """Verify that a capture contains the expected frame of each session exactly once.

        `learn` reads the outside address of a frame, and returns whether it belongs to the pool.
        """
        hint = "the build translates wrongly, or its version has another format of captures; VPP 26.06 is known to work"
        with open(path, "rb") as file:
            data = file.read()
        if len(data) != len(FILE_HEADER) + count * RECORD:
            raise Fault(f"a capture has {len(data)} bytes instead of {len(FILE_HEADER) + count * RECORD}", path, hint)
        seen = bytearray(count)
        for start in range(len(FILE_HEADER), len(data), RECORD):
            frame = data[start + RECORD - FRAME:start + RECORD]
            number = int.from_bytes(frame[-4:], "big")
            if data[start + 8:start + 16] != LENGTHS or number >= count or seen[number]:
                raise Fault("a captured frame is damaged or occurs twice", f"{path}, byte {start}: {frame.hex()}", hint)
            seen[number] = 1
            if learn and not learn(number, frame):
                raise Fault("an outside address is not in the pool", f"session {number}: {frame.hex()}", hint)
            difference = self.templates[number & 1].difference(frame, flow(number))
            if difference:
                raise Fault(f"a translated frame has wrong {difference}", f"session {number}: {frame.hex()}", hint)
