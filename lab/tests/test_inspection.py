"""Tests inspection with signatures, with real clients and servers at a gateway that translates and inspects."""

import hashlib
import json
import os
import signal

import pytest

from lab import configuration, waiting

pytestmark = pytest.mark.sluice

EICAR = r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"

RULES = r"""
drop tcp any any -> any any (msg:"EICAR test file"; flow:to_client,established; file_data; content:"EICAR-STANDARD-ANTIVIRUS-TEST-FILE"; classtype:trojan-activity; sid:1; rev:4;)
alert http any any -> any any (msg:"agent"; flow:to_server,established; http.user_agent; content:"curl/"; sid:2;)
reject udp any any -> any 9999 (msg:"datagram"; content:"forbidden"; sid:3;)
drop http any any -> any any (msg:"uri"; http.uri; content:"/download.bin?evil"; sid:4;)
alert tcp any any -> any any (msg:"needs what there is not"; dce_iface:x; sid:5;)
"""


@pytest.fixture(scope="module")
def folder(topology):
    return topology.gateway.folder


@pytest.fixture(scope="module")
def document(folder):
    with open(os.path.join(folder, "lab.rules"), "w", encoding="ascii") as file:
        file.write(RULES)
    made = configuration.standard()
    made["inspection"] = {
        "interfaces": ["inside1", "inside2"],
        "eve": os.path.join(folder, "eve.json"),
        "cache": "",
        "flows": 4096,
        "signatures": [{"file": os.path.join(folder, "lab.rules"), "dialect": "suricata"}],
    }
    return made


@pytest.fixture(scope="module", autouse=True)
def served(services, gateway):
    """A web server behind the gateway."""
    files = os.path.join(services.folder, "files")
    with open(os.path.join(files, "eicar.com"), "w", encoding="ascii") as file:
        file.write("padding " * 4000 + EICAR + " padding" * 4000)
    return services


def _fetch(client, address, path, *options):
    host = f"[{address}]" if ":" in address else address
    target = os.path.join(client.folder, "fetched")
    if os.path.exists(target):
        os.remove(target)
    client.run("curl", "-s", "-g", "-m", "4", *options, "-o", target, f"http://{host}{path}", check=False)
    if not os.path.exists(target):
        return b""
    with open(target, "rb") as file:
        return file.read()


def _alerts(gateway, signature):
    return [alert for alert in gateway.show("alerts", "--last", "1000")["alerts"] if alert["signature"] == signature]


@pytest.mark.parametrize("family", ["address", "address6"])
def test_harmless_download_arrives_whole(topology, gateway, served, family):
    content = _fetch(topology.alice, getattr(topology.server, family), "/download.bin", "-m", "30")
    assert served.digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("family", ["address", "address6"])
def test_file_that_matches_does_not_arrive_whole(topology, gateway, family):
    before = len(_alerts(gateway, 1))
    content = _fetch(topology.alice, getattr(topology.server, family), "/eicar.com")
    assert b"EICAR-STANDARD-ANTIVIRUS-TEST-FILE" not in content
    alerts = waiting.until(lambda: _alerts(gateway, 1)[before:], "the alert")
    assert [("drop", 1, 4, "EICAR test file", "trojan-activity", 1)] == [
        (a["action"], a["generator"], a["revision"], a["message"], a["class"], a["priority"]) for a in alerts
    ]
    # The alert contains the inside address of the client, not its outside address.
    assert getattr(topology.alice, family) == alerts[0]["destination"]


def test_request_that_matches_reaches_no_server(topology, gateway):
    before = len(_alerts(gateway, 4))
    assert b"" == _fetch(topology.alice, topology.server.address, "/download.bin?evil")
    waiting.until(lambda: len(_alerts(gateway, 4)) > before, "the alert")


def test_datagram_that_is_rejected_is_answered(topology, gateway):
    with topology.alice.open_socket() as sender:
        sender.connect((topology.server.address, 9999))
        sender.send(b"a forbidden word")
        with pytest.raises(OSError):
            sender.settimeout(3)
            sender.recv(100)
    assert 1 == len(_alerts(gateway, 3))


def test_alerts_are_lines_of_eve_json(topology, gateway, folder):
    _fetch(topology.alice, topology.server.address, "/whoami")

    def lines():
        with open(os.path.join(folder, "eve.json"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def mine():
        asked = [line for line in lines() if line["alert"]["signature_id"] == 2]
        return [line for line in asked if line["src_ip"] == topology.alice.address]

    line = waiting.until(mine, "a line")[-1]
    assert ("alert", "TCP", 80, "allowed") == (
        line["event_type"], line["proto"], line["dest_port"], line["alert"]["action"]
    )
    # The alert contains the server's address without translation.
    assert topology.server.address == line["dest_ip"]


def test_file_of_records_that_was_moved_away_is_made_anew(topology, gateway, folder):
    path = os.path.join(folder, "eve.json")
    os.rename(path, path + ".1")
    gateway.process.signal(signal.SIGHUP)
    waiting.until(lambda: os.path.exists(path), "the file")
    _fetch(topology.alice, topology.server.address, "/whoami")

    def lines():
        with open(path, encoding="utf-8") as file:
            return [line for line in file if line.endswith("\n")]

    line = json.loads(waiting.until(lines, "a line")[0])
    assert ("alert", 2) == (line["event_type"], line["alert"]["signature_id"])


def test_rules_that_are_not_in_force_are_named_with_line_and_reason(gateway):
    status = gateway.show("inspection")
    assert 4 == status["signatures"]
    (refused,) = status["refused"]
    assert (6, 5) == (refused["line"], refused["signature"])
    assert "dce_iface" in refused["why"]


def test_what_was_inspected_is_counted(topology, gateway):
    before = gateway.show("inspection")
    _fetch(topology.alice, topology.server.address, "/whoami")
    after = gateway.show("inspection")
    assert after["inspected"] > before["inspected"]
    assert after["searched"] > before["searched"]
    assert 0 == after["alerts-lost"]
