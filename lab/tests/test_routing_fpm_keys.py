"""Tests FPM peers with signed connections (TCP-MD5, RFC 2385). Only a peer with the key can connect."""

import os

import pytest

from lab import configuration, waiting
from lab.host import Host, connect
from lab.topology import Topology

pytestmark = pytest.mark.sluice

UPSTREAM = "198.51.100.1"

# A program that connects with a key, or without a key if it is empty, and sends a route to 203.0.113.128/25.
TELLER = """
import socket, struct, sys, time
key, gateway = sys.argv[1].encode(), socket.inet_aton(sys.argv[2])
own = socket.socket()
if key:
    peer = struct.pack("=H2x4s120x", socket.AF_INET, socket.inet_aton("10.255.0.1"))
    own.setsockopt(socket.IPPROTO_TCP, 14, peer + struct.pack("=BBHi80s", 0, 0, len(key), 0, key))
own.settimeout(3)
try:
    own.connect(("10.255.0.1", 2620))
except TimeoutError:
    sys.exit("no connection")
attributes = struct.pack("=HH4s", 8, 1, socket.inet_aton("203.0.113.128")) + struct.pack("=HH4s", 8, 5, gateway)
body = struct.pack("=8BI", 2, 25, 0, 0, 254, 186, 0, 1, 0) + attributes
message = struct.pack("=IHHII", 16 + len(body), 24, 0x501, 1, 0) + body
own.send(struct.pack("!BBH", 1, 1, 4 + len(message)) + message)
print("told", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def topology():
    made = Topology()
    made.teller = Host("teller", made.folder)
    made.hosts.append(made.teller)
    connect(made.gateway, "tell", made.teller, "eth0")
    made.gateway.run("ip", "address", "add", "10.255.0.1/30", "dev", "tell")
    made.teller.run("ip", "address", "add", "10.255.0.2/30", "dev", "eth0")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def key_file(topology):
    path = os.path.join(topology.folder, "teller.key")
    topology.gateway.put(path, "a key of both\n")
    os.chmod(path, 0o600)
    return path


@pytest.fixture(scope="module")
def document(key_file):
    fpm = {"listen": "10.255.0.1:2620", "peers": ["10.255.0.2"], "md5-key-files": {"10.255.0.2": key_file}}
    return configuration.changed(configuration.standard(), routers={"default": {"fpm": fpm}})


def test_route_of_a_peer_that_signs_by_the_key_is_followed_and_without_it_there_is_no_connection(topology, gateway):
    for key in ["", "a key of nobody"]:
        assert "no connection" in topology.teller.run("python3", "-c", TELLER, key, UPSTREAM, check=False)
    assert 0 == gateway.show("routers")["routers"][0]["fpm"]["connections"]
    topology.teller.spawn("python3", "-c", TELLER, "a key of both", UPSTREAM, label="teller").wait_for_line("told")
    waiting.until(
        lambda: any(
            (row["to"], row.get("via")) == ("203.0.113.128/25", UPSTREAM) for row in gateway.show("routes")["routes"]
        ), "the route", 30,
    )


def test_key_that_others_can_read_is_refused_with_its_place(gateway, document, key_file):
    os.chmod(key_file, 0o644)
    try:
        output = gateway.command("apply", gateway.write(document, "open.toml"), check=False)
        assert "is accessible to others than its owner (mode 644)" in output
        assert f"chmod 600 {key_file}" in output
    finally:
        os.chmod(key_file, 0o600)
