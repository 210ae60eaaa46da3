"""Tests records of inspection, which are read from a Unix socket, with real clients and servers at a gateway that
translates."""

import json
import os
import socket
import threading

import pytest

from lab import configuration, waiting
from lab.services import NAME

pytestmark = pytest.mark.sluice

RULES = r"""
alert http any any -> any any (msg:"agent"; flow:to_server,established; http.user_agent; content:"odd"; sid:1;)
drop http any any -> any any (msg:"uri"; http.uri; content:"/evil"; sid:2; rev:3;)
"""

TYPES = ["alert", "drop", "flow", "stats", "http", "dns", "tls"]


class Reader:
    """A reader of records that are received from a socket."""

    def __init__(self, path):
        self.records = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(1)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        connection, _ = self.listener.accept()
        with connection, connection.makefile(encoding="utf-8") as lines:
            for line in lines:
                self.records.append(json.loads(line))

    def of(self, kind, **fields):
        """Records of a type with these fields."""
        records = [record for record in list(self.records) if record["event_type"] == kind]
        return [record for record in records if fields.items() <= {**record, **record.get(kind, {})}.items()]

    def wait(self, kind, count=1, **fields):
        """Wait for at least `count` records of a type with these fields, and return the records."""
        def enough():
            found = self.of(kind, **fields)
            return found if len(found) >= count else None

        try:
            return waiting.until(enough, f"{count} of {kind} with {fields}")
        except waiting.Timeout as error:
            raise waiting.Timeout(f"{error}: {self.of(kind)[-5:]}") from None


@pytest.fixture(scope="module")
def reader(topology):
    return Reader(os.path.join(topology.gateway.folder, "records"))


@pytest.fixture(scope="module")
def document(topology, reader):
    folder = topology.gateway.folder
    with open(os.path.join(folder, "eve.rules"), "w", encoding="ascii") as file:
        file.write(RULES)
    made = configuration.standard()
    made["inspection"] = {
        "interfaces": ["inside1", "inside2"],
        "eve": {"stream": os.path.join(folder, "records"), "types": TYPES, "stats-interval": "1s"},
        "cache": "",
        "flows": 4096,
        "signatures": [{"file": os.path.join(folder, "eve.rules"), "dialect": "suricata"}],
    }
    return made


@pytest.fixture(scope="module", autouse=True)
def served(services, gateway):
    return services


def _fetch(client, address, path, *options):
    host = f"[{address}]" if ":" in address else address
    return client.run("curl", "-s", "-g", "-m", "4", *options, f"http://{host}{path}", check=False)


def _end(gateway):
    """End all flows."""
    gateway.command("clear", "sessions", "--all")


@pytest.mark.parametrize("family", ["address", "address6"])
def test_request_is_recorded_with_its_response_and_then_its_flow(topology, gateway, reader, family):
    client, server = [getattr(host, family) for host in (topology.alice, topology.server)]
    body = _fetch(topology.alice, server, f"/whoami?{family}", "-A", "an odd agent")
    (record,) = reader.wait("http", url=f"/whoami?{family}")
    assert (client, server, 80, "TCP", "inside1", "http") == tuple(
        record[key] for key in ("src_ip", "dest_ip", "dest_port", "proto", "in_iface", "app_proto")
    )
    said = record["http"]
    assert ("GET", "an odd agent", "HTTP/1.1", 200, len(body)) == tuple(
        said[key] for key in ("http_method", "http_user_agent", "protocol", "status", "length")
    )
    assert said["hostname"] in (server, f"[{server}]")
    assert "truncated" not in said
    (alert,) = reader.wait("alert", flow_id=record["flow_id"])
    assert (1, "allowed") == (alert["alert"]["signature_id"], alert["alert"]["action"])
    _end(gateway)
    (flow,) = reader.wait("flow", flow_id=record["flow_id"])
    assert (client, record["src_port"], "http") == (flow["src_ip"], flow["src_port"], flow["app_proto"])
    said = flow["flow"]
    assert ("forced", "closed", True) == (said["reason"], said["state"], said["alerted"])
    assert said["pkts_toserver"] >= 4 and said["pkts_toclient"] >= 3
    assert said["bytes_toserver"] > 200 and said["bytes_toclient"] > 200
    assert said["start"] <= said["end"]


@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_names_are_recorded_as_asked_and_as_answered(topology, reader, transport):
    before = {kind: len(reader.of("dns", rrname=NAME, type=kind)) for kind in ("query", "answer")}
    topology.alice.run("dig", "+short", "+time=3", transport, f"@{topology.server.address}", NAME)
    query, answer = [
        reader.wait("dns", before[kind] + 1, rrname=NAME, type=kind)[-1] for kind in ("query", "answer")
    ]
    assert query["flow_id"] == answer["flow_id"]
    # The source of a record is the client of the flow, even if the server sends the message.
    assert [topology.alice.address] * 2 == [query["src_ip"], answer["src_ip"]]
    assert [53, {"+notcp": "UDP", "+tcp": "TCP"}[transport]] == [query["dest_port"], query["proto"]]
    assert ("A", "A", query["dns"]["id"]) == (query["dns"]["rrtype"], answer["dns"]["rrtype"], answer["dns"]["id"])
    assert "NOERROR" == answer["dns"]["rcode"]
    assert [(NAME, "A", topology.server.address)] == [
        (record["rrname"], record["rrtype"], record["rdata"]) for record in answer["dns"]["answers"]
    ]


def test_name_that_does_not_exist_has_its_code(topology, reader):
    topology.alice.run("dig", "+short", "+time=3", f"@{topology.server.address}", "nothing.example.test", "AAAA")
    (answer,) = reader.wait("dns", type="answer", rrname="nothing.example.test")
    assert answer["dns"]["rcode"] != "NOERROR"
    assert ("AAAA", []) == (answer["dns"]["rrtype"], answer["dns"]["answers"])


@pytest.mark.parametrize("option, version", [("-tls1_2", "TLS 1.2"), ("-tls1_3", "TLS 1.3")])
def test_hello_is_recorded_with_name_and_version(topology, reader, option, version):
    folder = topology.server.folder
    key, certificate = [os.path.join(folder, name) for name in ("key.pem", "certificate.pem")]
    topology.server.run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=lab",
        "-keyout", key, "-out", certificate,
    )
    server = topology.server.spawn(
        "openssl", "s_server", "-accept", "4433", "-key", key, "-cert", certificate, option, "-www"
    )
    try:
        topology.server.wait_listening(4433)
        name = f"{option[1:].replace('_', '-')}.example.test"
        topology.alice.run(
            "openssl", "s_client", "-connect", f"{topology.server.address}:4433", "-servername", name, check=False
        )
        (record,) = reader.wait("tls", sni=name)
    finally:
        server.stop()
    assert (version, 32) == (record["tls"]["version"], len(record["tls"]["ja3"]["hash"]))
    assert (topology.alice.address, 4433, "tls") == (record["src_ip"], record["dest_port"], record["app_proto"])


def test_packet_that_is_dropped_is_recorded_with_its_rule(topology, gateway, reader):
    _fetch(topology.alice, topology.server.address, "/evil", "-m", "2")
    first = reader.wait("drop", reason="signature")[-1]
    assert ("blocked", 2, 3) == tuple(first["alert"][key] for key in ("action", "signature_id", "rev"))
    assert (topology.alice.address, "to_server") == (first["src_ip"], first["direction"])
    assert first["drop"]["len"] > 40
    # Retransmitted segments are dropped, too.
    rest = reader.wait("drop", reason="flow-dropped", flow_id=first["flow_id"])
    assert 2 == rest[0]["alert"]["signature_id"]
    (alert,) = reader.wait("alert", flow_id=first["flow_id"])
    assert "blocked" == alert["alert"]["action"]


def test_statistics_are_recorded_again_and_again(topology, gateway, reader):
    before = len(reader.of("stats"))
    _fetch(topology.alice, topology.server.address, "/whoami")
    records = reader.wait("stats", before + 2)
    said = [record["stats"] for record in records]
    assert all(first["uptime"] <= second["uptime"] for first, second in zip(said, said[1:]))
    assert said[-1]["decoder"]["pkts"] > 0
    assert said[-1]["inspection"]["records"] > 0


def test_records_that_were_written_are_counted(gateway, reader):
    # The daemon continues to write records during this test. Each record that the test has read was written before, so
    # it must be counted.
    seen = len(reader.records)
    assert seen > 0
    waiting.until(lambda: gateway.show("inspection")["records"] >= seen, "the count of records to reach what was read")
    assert 0 == gateway.show("inspection")["records-lost"]
