"""Tests malformed HTTP responses. Rules find the content that a client reads, regardless of the form of the
response."""

import gzip
import os
import sys
import threading
import zlib

import pytest

from lab import configuration, waiting

pytestmark = pytest.mark.sluice

PORT = 8081

READER = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=4)
connection.request("GET", "/")
try:
    sys.stdout.buffer.write(connection.getresponse().read())
except http.client.IncompleteRead as short:
    sys.stdout.buffer.write(short.partial)
except (http.client.HTTPException, ValueError, OSError):
    pass
"""


def _bare(content):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def _members(content):
    return gzip.compress(content[:3]) + gzip.compress(content[3:])


def _brotli(content):
    """A Brotli stream with a window of 64 KiB, an uncompressed block, and an empty last block (RFC 7932 section 9)."""
    return ((len(content) - 1) << 4 | 1 << 20).to_bytes(3, "little") + content + b"\x03"


def _chunks(size):
    return lambda mark: b"Transfer-Encoding: chunked\r\n\r\n" + size % len(mark) + b"\r\n" + mark + b"\r\n0\r\n\r\n"


def _encoded(names, *packers):
    def make(mark):
        for packer in packers:
            mark = packer(mark)
        return names + b"\r\n\r\n" + mark

    return make


# Each case contains a name, the bytes after the status line for a content, and whether curl reads the content.
CASES = [
    ("plain", lambda mark: b"\r\n" + mark, True),
    ("line-feeds", lambda mark: b"Content-Length: %d\n\n" % len(mark) + mark, True),
    ("folded", lambda mark: b"X-Folded: a\r\n b\r\nContent-Length: %d\r\n\r\n" % len(mark) + mark, True),
    ("folded-length", lambda mark: b"Content-Length:\r\n %d\r\n\r\n" % len(mark) + mark, None),
    ("junk", lambda mark: b"No colon\r\nContent-Length: %d\r\n\r\n" % len(mark) + mark, None),
    ("repeated-length", lambda mark: b"Content-Length: %d\r\n" % len(mark) * 2 + b"\r\n" + mark, True),
    ("length-and-chunks", lambda mark: b"Content-Length: 3\r\n" + _chunks(b"%x")(mark), True),
    ("chunks", _chunks(b"%x"), True),
    ("chunks-extension", _chunks(b"%x;a=b"), True),
    ("chunks-zeros", _chunks(b"000%x"), True),
    ("chunks-junk", _chunks(b"%xzz"), None),
    ("chunks-plus", _chunks(b"+%x"), None),
    ("chunks-space", _chunks(b" %x"), None),
    ("chunks-prefix", _chunks(b"0x%x"), None),
    ("gzip", _encoded(b"Content-Encoding: gzip", gzip.compress), True),
    ("x-gzip", _encoded(b"Content-Encoding: x-gzip", gzip.compress), True),
    ("gzip-members", _encoded(b"Content-Encoding: gzip", _members), None),
    ("gzip-garbage", _encoded(b"Content-Encoding: gzip", gzip.compress, lambda mark: mark + b"garbage"), None),
    ("gzip-gzip", _encoded(b"Content-Encoding: gzip, gzip", gzip.compress, gzip.compress), True),
    ("gzip-twice", _encoded(b"Content-Encoding: gzip\r\nContent-Encoding: gzip", gzip.compress, gzip.compress), True),
    ("deflate", _encoded(b"Content-Encoding: deflate", zlib.compress), True),
    ("deflate-bare", _encoded(b"Content-Encoding: deflate", _bare), True),
    ("deflate-gzip", _encoded(b"Content-Encoding: deflate, gzip", zlib.compress, gzip.compress), True),
    ("brotli", _encoded(b"Content-Encoding: br", _brotli), True),
    ("brotli-garbage", _encoded(b"Content-Encoding: br", _brotli, lambda mark: mark + b"garbage"), None),
    ("gzip-brotli", _encoded(b"Content-Encoding: gzip, br", gzip.compress, _brotli), True),
    ("gzip-is-zlib", _encoded(b"Content-Encoding: gzip", zlib.compress), None),
    ("identity", _encoded(b"Content-Encoding: identity"), True),
]


def _mark(name):
    return b"what is read of %s is this" % name.encode()


@pytest.fixture(scope="module")
def document(topology):
    folder = topology.gateway.folder
    rules = [
        f'alert http any any -> any any (msg:"{name}"; flow:to_client; file.data; '
        f'content:"{_mark(name).decode()}"; sid:{number};)'
        for number, (name, _, _) in enumerate(CASES, 1)
    ]
    with open(os.path.join(folder, "readers.rules"), "w", encoding="ascii") as file:
        file.write("\n".join(rules) + "\n")
    made = configuration.standard()
    made["inspection"] = {
        "interfaces": ["inside1", "inside2"],
        "cache": "",
        "flows": 4096,
        "signatures": [{"file": os.path.join(folder, "readers.rules"), "dialect": "suricata"}],
    }
    return made


@pytest.fixture(scope="module")
def answers(topology):
    """A server that answers each connection with the current content of its list."""
    answer = [b""]
    listener = topology.server.listener(PORT)
    listener.settimeout(None)

    def serve():
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            with taken:
                taken.settimeout(4)
                try:
                    asked = b""
                    while b"\r\n\r\n" not in asked:
                        more = taken.recv(4096)
                        if not more:
                            break
                        asked += more
                    taken.sendall(answer[0])
                except OSError:
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield answer
    # Wake the thread, which then detects that the listener is closed.
    listener.shutdown(2)
    listener.close()
    thread.join(5)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[name for name, _, _ in CASES])
def test_what_clients_read_is_found(topology, gateway, answers, number):
    name, make, reads = CASES[number]
    answers[0] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + make(_mark(name))
    server = topology.server.address
    curl = ["curl", "-s", "-m", "4", "--compressed", "--http0.9", f"http://{server}:{PORT}/"]
    python = [sys.executable, "-c", READER, server, str(PORT)]
    outputs = [topology.alice.run(*command, check=False) for command in (curl, python)]
    by_curl, by_python = [_mark(name).decode() in output for output in outputs]
    if reads is not None:
        assert reads == by_curl
    if not (by_curl or by_python):
        return

    def found():
        alerts = gateway.show("alerts", "--last", "1000")["alerts"]
        return [alert for alert in alerts if alert["signature"] == number + 1]

    waiting.until(found, f"the alert about {name}")


def test_anomaly_is_counted_by_message(topology, gateway, answers):
    def counted():
        met = {each["reason"]: each["packets"] for each in gateway.show("inspection")["anomalies"]}
        return met.get("conflicting-content-length", 0)

    before = counted()
    answers[0] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab"
    topology.alice.run("curl", "-s", "-m", "4", f"http://{topology.server.address}:{PORT}/", check=False)
    waiting.until(lambda: counted() == before + 1, "the anomaly")
