"""Tests application identification. Traffic of real clients and servers is identified, and rules about applications
drop it."""

import os

import pytest

from lab import configuration, waiting

pytestmark = pytest.mark.sluice

# A name that nDPI assigns to an application, and a name that nDPI does not contain.
KNOWN, PLAIN = "www.netflix.com", "www.example.test"


@pytest.fixture(scope="module")
def document():
    made = configuration.standard()
    made["applications"] = {"interfaces": ["inside1", "inside2"]}
    made["filter"] = {
        "rules": [
            {"name": "no-films", "action": "reject", "application": ["Netflix", "BitTorrent"], "in": "inside2"},
            {"name": "all", "action": "accept"},
        ]
    }
    return made


NGINX = """\
daemon off;
master_process off;
pid {folder}/secured.pid;
error_log stderr warn;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 443 ssl;
        ssl_certificate {folder}/certificate.pem;
        ssl_certificate_key {folder}/key.pem;
        root {folder}/files;
    }}
}}
"""


@pytest.fixture(scope="module", autouse=True)
def secured(services, topology, gateway):
    """A TLS server that accepts every server name."""
    folder = services.folder
    topology.server.run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={PLAIN}",
        "-keyout", os.path.join(folder, "key.pem"), "-out", os.path.join(folder, "certificate.pem"),
    )
    path = os.path.join(folder, "secured.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write(NGINX.format(folder=folder))
    topology.server.spawn("nginx", "-e", "stderr", "-c", path, label="secured")
    topology.server.wait_listening(443)


def _fetch(client, server, name):
    """Number of bytes of a file that arrive over TLS."""
    target = os.path.join(client.folder, "fetched")
    if os.path.exists(target):
        os.remove(target)
    client.run(
        "curl", "-s", "-k", "-m", "20", "--resolve", f"{name}:443:{server.address}", "-o", target,
        f"https://{name}/download.bin", check=False,
    )
    return os.path.getsize(target) if os.path.exists(target) else 0


def _named(gateway, *options):
    return [session["application"] for session in gateway.show("sessions", *options)["sessions"]
            if "application" in session]


def test_download_over_tls_is_named_by_its_server(topology, gateway):
    assert 8 << 20 == _fetch(topology.alice, topology.server, KNOWN)
    waiting.until(lambda: "TLS.NetFlix" in _named(gateway), "the name")
    assert _named(gateway, "--application", "netflix") == _named(gateway, "--application", "TLS.NetFlix") != []


def test_request_and_question_are_named(topology, gateway):
    topology.alice.run("curl", "-s", "-m", "5", f"http://{topology.server.address}/whoami")
    waiting.until(lambda: "HTTP" in " ".join(_named(gateway)), "the name")
    status = gateway.show("applications")
    assert "HTTP" in [one["application"] for one in status["applications"] if one["sessions"] > 0]
    assert 0 == sum(row["sessions"] for row in status["results"] if row["result"] in ("refused", "short-of-memory"))


def test_application_that_a_rule_rejects_does_not_begin_and_others_do(topology, gateway):
    assert 0 == _fetch(topology.bob, topology.server, KNOWN)
    assert 8 << 20 == _fetch(topology.bob, topology.server, PLAIN)
    assert gateway.drops()["filter-application"] > 0


def test_rule_about_no_application_is_refused_with_its_line(gateway):
    rule = 'name = "films", action = "drop", application = "Netflx"'
    assert "did you mean `NetFlix`" in gateway.command("filter", "insert", rule, check=False)
    wrong = configuration.changed(gateway.document)
    wrong["filter"]["rules"][0]["application"] = ["BitTorrent", "TLS.Netflx"]
    answer = gateway.host.run(gateway.binary, "check", gateway.write(wrong, "wrong.toml"), check=False)
    assert "there is no application `TLS.Netflx`" in answer and "did you mean `TLS.NetFlix`" in answer
    lines = open(os.path.join(gateway.host.folder, "wrong.toml"), encoding="utf-8").read().splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if "TLS.Netflx" in text]
    assert f"wrong.toml:{line}:" in answer
