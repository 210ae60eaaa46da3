"""Tests two workers and cards with two queues. Each packet arrives on the queue that the card's hash selects, and
stays with the worker of this queue."""

import hashlib
import json
import re
import socket

import pytest

from lab import waiting
from lab.vm import hashing
from lab.vm.lanes import SERVER, SERVER6, Files, document, request, running

PORT = 7000
FLOWS = {SERVER: 128, SERVER6: 64}
# The text of a packet in a trace.
PACKET = re.compile(r"^\[?([0-9a-f.:]+?)\]?:(\d+) > \[?([0-9a-f.:]+?)\]?:(\d+) udp")


@pytest.fixture(scope="module")
def gateway(guest):
    """A gateway with two workers. The mapping behaviour of its pools distributes the flows of a host over both
    workers."""
    lanes = [lane for name, lane in guest.lanes.items() if lane.kind.queues > 1 or name in ("e1000e", "vmxnet3")]
    made = document(lanes, system={"workers": 2, "steering": "five-tuple"}, pool={"mapping": "address-and-port-dependent"})
    with running(guest, made, lanes) as gateway:
        gateway.lanes = {lane.name: lane for lane in lanes}
        yield gateway


def exchange(lane, address, ports):
    """Send a packet of each flow to the server and an answer back, one flow after another."""
    with lane.server.open_socket(socket.AF_INET6, timeout=60) as server:
        server.bind(("", PORT))
        for port in ports:
            with lane.client.open_socket(socket.AF_INET6 if ":" in address else socket.AF_INET, timeout=60) as client:
                client.bind(("", port))
                client.sendto(b"%d" % port, (address, PORT))
                data, seen = server.recvfrom(100)
                server.sendto(data, seen)
                assert b"%d" % port == client.recv(100)


class Trace:
    """The workers' trace of packets to and from the server's port."""

    def __init__(self, guest, gateway, lane):
        self.guest = guest
        self.process = guest.spawn("sluice", "trace", "--json", "--port", str(PORT), "--count", "1000", "--seconds", "600",
                                   "--socket", gateway.document["control"]["socket"])
        while self.lines() == 0:
            # Send packets until the trace is active on all workers.
            exchange(lane, SERVER, range(19_000, 19_008))

    def lines(self):
        return int(self.guest.sh(f"wc -l <{self.process.log}"))

    def records(self):
        return [json.loads(line) for line in self.process.output.splitlines()]


def handed_over(gateway):
    """Number of packets that workers have handed off because of their sessions."""
    counters = [counter for core in gateway.show("cores")["cores"] for counter in core["counters"]]
    return sum(counter["count"] for counter in counters if counter["name"] == "handed-over-session")


@pytest.mark.parametrize("kind", ["virtio-mq", "virtio-rss", "e1000e", "vmxnet3"])
def test_files_over_two_workers_have_the_same_hash(gateway, kind):
    lane = gateway.lanes[kind]
    files = Files(lane.server, megabytes=1 if lane.kind.hashes else 4)
    try:
        for address in FLOWS:
            assert files.digest == hashlib.sha256(request(lane.client, address)).hexdigest()
    finally:
        files.stop()


@pytest.mark.parametrize("kind", ["virtio-mq", "virtio-rss", "e1000e", "vmxnet3"])
def test_steering_of_two_queues_is_told_as_it_is(gateway, kind):
    lane = gateway.lanes[kind]
    rows = [row for row in gateway.show("interfaces")["interfaces"] if row["name"] in (lane.inside.name, lane.outside.name)]
    assert [2, 2] == [row["queues"] for row in rows]
    for row in rows:
        assert ("hashes addresses and ports" == row["steering"]) == lane.kind.hashes, row["steering"]


def test_packets_come_to_the_queue_that_the_card_s_hash_names(guest, gateway):
    lane = gateway.lanes["virtio-rss"]
    devices = dict(zip((lane.inside.name, lane.outside.name), hashing.read(guest, (lane.inside, lane.outside))))
    for device in devices.values():
        assert (True, hashing.ALL_TYPES, {0, 1}) == (device.enabled, device.types, set(device.table))
    for address in FLOWS:
        lane.ping(address=address)
    trace = Trace(guest, gateway, lane)
    before, expected = handed_over(gateway), {}
    for address, flows in FLOWS.items():
        # Packets are sent in groups, because workers buffer only a few packets for a trace.
        for first in range(20_000, 20_000 + flows, 16):
            known = trace.lines()
            exchange(lane, address, range(first, first + 16))
            waiting.until(lambda known=known: trace.lines() >= known + 32, "both ways of the flows to be traced", 60)
    trace.process.stop()
    for record in trace.records():
        source, source_port, destination, destination_port = PACKET.match(record["packet"]).groups()
        packet = (source, int(source_port), destination, int(destination_port))
        queue = devices[record["interface"]].queue(*packet)
        assert (queue, "parse") == (record["worker"], record["steps"][0]["node"]), record
        expected[packet] = queue
    packets = 2 * sum(FLOWS.values())
    assert len(expected) >= packets
    assert 0.25 < sum(expected.values()) / len(expected) < 0.75
    assert handed_over(gateway) - before <= 0.05 * packets
