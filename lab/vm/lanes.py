"""A lane consists of a client, a server, and two cards of a guest between them, on the inside and the outside of a
translation. All lanes have the same addresses. In the gateway, each lane is a separate virtual router."""

import contextlib
import hashlib
import http.client
import http.server
import os
import re
import signal
import socket
import threading

from lab.gateway import Sluice
from lab.host import Host

SERVER, SERVER6 = "198.51.100.1", "2001:db8:a::1"
POOL = "203.0.113.16/28"


class Lane:
    """A client and a server, connected to two cards of a guest."""

    def __init__(self, guest, name, inside, outside):
        self.guest, self.name, self.inside, self.outside = guest, name, inside, outside
        self.kind = inside.kind
        self.client, self.server = (Host(f"{guest.name}-{name}-{side}", guest.folder) for side in ("client", "server"))
        self.attach()

    def remove(self):
        """Remove the client and the server."""
        self.client.remove()
        self.server.remove()

    def attach(self):
        """Move the taps to the client and the server, and assign addresses."""
        self.guest.attach(self.inside, self.client)
        self.guest.attach(self.outside, self.server)
        for host, address, network6, routes in [
            (self.client, "10.0.0.2/24", "2001:db8:1::2/64", [("default", "10.0.0.1"), ("default", "2001:db8:1::1")]),
            (self.server, f"{SERVER}/25", f"{SERVER6}/64", [("203.0.113.0/24", "198.51.100.2"), ("default", "2001:db8:a::2")]),
        ]:
            host.run("ip", "address", "add", address, "dev", "eth0")
            host.run("ip", "-6", "address", "add", network6, "dev", "eth0", "nodad")
            for to, via in routes:
                host.run("ip", "-6" if ":" in via else "-4", "route", "add", to, "via", via)

    def ping(self, *options, address=SERVER, count=5, seconds=30, check=True):
        """Ping the server, or another host, from the client until `count` requests are answered. Returns the output
        of ping."""
        # Not -W: once ping has received an answer, it would then wait at most two round trips for the last answer.
        return self.client.run("ping", "-n", "-c", count, "-i", "0.05", "-w", seconds, *options, address, check=check)

    def ping_unanswered(self, count):
        """Send `count` requests and require that none is answered. With -w, ping would end at the first ICMP error."""
        output = self.client.run("ping", "-n", "-c", count, "-i", "0.05", "-W", "1", SERVER, check=False)
        assert " 0 received" in output, output


def interfaces(lane, **more):
    """The interfaces of a lane for a configuration."""
    sides = [(lane.inside, ["10.0.0.1/24", "2001:db8:1::1/64"]), (lane.outside, ["198.51.100.2/25", "2001:db8:a::2/64"])]
    return {
        card.name: {"device": lane.guest.address(card), "router": lane.name, "addresses": addresses, **more} for card, addresses in sides
    }


def router(lane):
    """A router that translates packets of its clients to a pool."""
    return {
        "routes": [{"to": "203.0.113.0/24", "action": "blackhole"}],
        "nat": {"source": [{"from": "10.0.0.0/24", "out": lane.outside.name, "pool": lane.name}]},
    }


def document(lanes, system=None, pool=None, **more):
    """The configuration of a gateway with these lanes. `more` is added to every interface."""
    interfaces_of = {}
    for lane in lanes:
        interfaces_of |= interfaces(lane, **more)
    return {
        "system": {"name": "guest", "workers": 1, **(system or {})},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": interfaces_of,
        "routers": {lane.name: router(lane) for lane in lanes},
        "nat": {"pools": {lane.name: {"addresses": [POOL], **(pool or {})} for lane in lanes}},
    }


class GuestSluice(Sluice):
    """Sluice in a guest."""

    COUNTERS = re.compile(
        r"^(?P<name>\S+): received (?P<received>\d+) \(.*\), sent (?P<sent>\d+) \(.*\), originated (?P<originated>\d+), dropped (?P<dropped>\d+), "
        r"to host (?P<host>\d+), parked (?P<parked>\d+), unparked (?P<unparked>\d+)$", re.MULTILINE,
    )

    def __init__(self, guest, document):
        super().__init__(guest, "sluice", document)

    @staticmethod
    def prepared(document):
        # A guest has its own hugepages, which its cards need.
        return document

    def start(self):
        # Wait for the log, because frequent polling would slow down the start.
        self.process = self.host.spawn(self.binary, "run", "-c", self.write())
        self.process.wait_for_line("is running, with the control socket", 120)

    def command(self, *words, check=True, timeout=120):
        # The timeout is long, because emulation is slow.
        return super().command(*words, check=check, timeout=timeout)

    def links(self):
        """The link state of each interface."""
        return {row["name"]: row["link"] for row in self.show("interfaces")["interfaces"]}

    def finish(self):
        """End Sluice, and check in its final report that every packet and every buffer is accounted for. Returns its
        output."""
        output = self.stop()
        assert "the devices are closed" in output, output
        assert "packet buffers leaked" not in output, output
        rows = [{key: int(value) for key, value in row.groupdict().items() if key != "name"} for row in self.COUNTERS.finditer(output)]
        assert len(rows) == len(self.document["interfaces"]), output
        total = {key: sum(row[key] for row in rows) for key in rows[0]}
        came = total["received"] + total["originated"] + total["unparked"]
        assert came == total["sent"] + total["dropped"] + total["host"] + total["parked"], f"{total}\n{output}"
        # vmxnet3 reads once from address 0 when it is started.
        assert not [line for line in self.host.complaints() if "DMA Write" in line]
        return output


@contextlib.contextmanager
def running(guest, document, lanes=()):
    """Context in which Sluice runs in a guest. Sluice must end without an error. The neighbour caches of the lanes'
    hosts are flushed."""
    for host in [host for lane in lanes for host in (lane.client, lane.server)]:
        host.run("ip", "neighbour", "flush", "all")
    gateway = GuestSluice(guest, document)
    try:
        gateway.start()
        yield gateway
        if gateway.process.running:
            gateway.finish()
    finally:
        if gateway.process.running:
            gateway.process.signal(signal.SIGKILL)
            gateway.process.wait()


class Files:
    """A web server of a host. It serves one file, and answers an upload with the digest of the received data."""

    def __init__(self, host, port=80, megabytes=4):
        content = os.urandom(megabytes << 20)
        self.digest = hashlib.sha256(content).hexdigest()

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self, data):
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self._answer(content)

            def do_PUT(self):
                data = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(hashlib.sha256(data).hexdigest().encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("", port), Handler, bind_and_activate=False)
        self.server.socket.close()
        self.server.socket = host.listener(port, socket.AF_INET6)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def request(host, address, method="GET", body=None, port=80):
    """Send a request from a host to a `Files` server, and return the body of the response."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = http.client.HTTPConnection(address, port)
    connection.sock = host.open_socket(family, socket.SOCK_STREAM, timeout=30)
    connection.sock.connect((address, port))
    try:
        connection.request(method, "/", body)
        return connection.getresponse().read()
    finally:
        connection.close()
