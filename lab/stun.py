"""A STUN server with two addresses and ports (RFC 5780, section 3), and STUN clients.

Server and client are programs of coturn. The client of coturn supports only UDP. This module implements requests over
TCP, and requests from sockets that a test continues to use.
"""

import os
import re
import socket
import struct

PORTS = (3478, 3479)
BINDING_REQUEST, BINDING_RESPONSE = 0x0001, 0x0101
XOR_MAPPED_ADDRESS = 0x0020
COOKIE = 0x2112A442


class Server:
    """The server on a host with two addresses, which is ready when the constructor returns."""

    def __init__(self, host, addresses):
        self.addresses = addresses
        listening = [f"--listening-ip={address}" for address in addresses]
        self.process = host.spawn(
            "turnserver", "-n", "--stun-only", "--no-auth", "--no-cli", "--no-tls", "--no-dtls", *listening,
            f"--listening-port={PORTS[0]}", f"--alt-listening-port={PORTS[1]}", "--log-file=stdout", "--simple-log",
            f"--pidfile={os.path.join(host.folder, 'turnserver.pid')}",
            f"--userdb={os.path.join(host.folder, 'turndb')}",
        )
        for port in PORTS:
            host.wait_listening(port)
            host.wait_listening(port, "udp")


class Discovery:
    """coturn's client on a host: tests `mapping`, `filtering` or `hairpinning` of UDP from one of its addresses."""

    def __init__(self, host, address, server, what):
        flag = {"mapping": "-m", "filtering": "-f", "hairpinning": "-H"}[what]
        self.what = what
        self.process = host.spawn(
            "turnutils_natdiscovery", flag, "-L", address, "-p", PORTS[0], server.addresses[0],
            label=f"{what}-{address}",
        )

    def result(self):
        """The result of the client: a behaviour in the terms of RFC 4787, or whether hairpinning works."""
        self.process.wait()
        output = self.process.output
        if self.what == "hairpinning":
            return "Received a request (maybe a successful hairpinning)" in output
        found = re.search(rf"^NAT with (.*) {self.what.capitalize()}!$", output, re.MULTILINE)
        assert found, output
        return found.group(1).lower().replace(" ", "-")


def mapped(asking):
    """The outside address and port of a connected socket, as seen by the STUN server at its other end."""
    transaction = os.urandom(12)
    asking.sendall(struct.pack("!HHI12s", BINDING_REQUEST, 0, COOKIE, transaction))
    if asking.type == socket.SOCK_DGRAM:
        answer = asking.recv(2048)
    else:
        answer = _exactly(asking, 20)
        answer += _exactly(asking, struct.unpack_from("!H", answer, 2)[0])
    kind, length, cookie, echoed = struct.unpack_from("!HHI12s", answer)
    assert (BINDING_RESPONSE, COOKIE, transaction) == (kind, cookie, echoed), answer.hex()
    return _address(answer[20 : 20 + length])


def _address(attributes):
    while attributes:
        kind, length = struct.unpack_from("!HH", attributes)
        if kind == XOR_MAPPED_ADDRESS:
            _, port, address = struct.unpack_from("!HHI", attributes, 4)
            return socket.inet_ntoa(struct.pack("!I", address ^ COOKIE)), port ^ (COOKIE >> 16)
        attributes = attributes[4 + (length + 3) // 4 * 4 :]
    raise AssertionError("an answer without XOR-MAPPED-ADDRESS")


def _exactly(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the STUN server has closed the connection"
        data += more
    return data
