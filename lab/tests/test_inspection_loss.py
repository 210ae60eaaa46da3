"""Tests inspection with a lossy link before or after the gateway. Connections continue, and matching data does not
arrive."""

import hashlib
import os
import shutil

import pytest

from lab import lossy
from lab.gateway import Sluice
from lab.host import Host, connect
from lab.services import Services
from lab.topology import Laid

pytestmark = pytest.mark.sluice

EICAR = r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"

RULES = r"""
drop tcp any any -> any any (msg:"EICAR test file"; flow:to_client,established; file_data; content:"EICAR-STANDARD-ANTIVIRUS-TEST-FILE"; sid:1;)
drop tcp any any -> any any (msg:"upload"; flow:to_server,established; content:"EICAR-STANDARD-ANTIVIRUS-TEST-FILE"; sid:2;)
"""

LOSS = 2.0
TRANSFERS = 12


class Lossy(Laid):
    """Two hosts of one network with a bridge between them. The link on one side of the bridge loses packets:

        alice ── link ── left ─ gateway ─ right ── server      or      alice ── left ─ gateway ─ right ── link ── server
    """

    def __init__(self, where, folder="/run/lab/lossy"):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder = folder
        self.hosts = [Host(name, folder) for name in ["alice", "gateway", "server", "link"]]
        self.alice, self.gateway, self.server, self.link = self.hosts
        for host in (self.gateway, self.link):
            host.setting("net.ipv6.conf.default.disable_ipv6=1")
        for side, host in [("left", self.alice), ("right", self.server)]:
            if side == where:
                connect(self.gateway, side, self.link, "near")
                connect(self.link, "far", host, "eth0")
            else:
                connect(self.gateway, side, host, "eth0")
        for host, last in [(self.alice, 2), (self.server, 130)]:
            host.address, host.address6 = f"198.51.100.{last}", f"2001:db8:b::{last}"
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "-6", "address", "add", f"{host.address6}/64", "dev", "eth0", "nodad")
        lossy.spawn(self.link, ["near", "far"], LOSS)


@pytest.fixture(scope="module", params=["left", "right"], ids=["before", "behind"])
def topology(request):
    made = Lossy(request.param)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def services(topology):
    made = Services(topology.server, megabytes=1)
    with open(os.path.join(made.folder, "files", "eicar.com"), "w", encoding="ascii") as file:
        file.write("padding " * 4000 + EICAR + " padding" * 4000)
    return made


@pytest.fixture(scope="module")
def gateway(topology, services, binary):
    rules = os.path.join(topology.gateway.folder, "lab.rules")
    with open(rules, "w", encoding="ascii") as file:
        file.write(RULES)
    made = Sluice(topology.gateway, binary, {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 4096, "ipv6": 4096},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {name: {"device": name} for name in ["left", "right"]},
        "bridges": {"wire": {"interfaces": ["left", "right"]}},
        "inspection": {
            "cache": "",
            "interfaces": ["left", "right"],
            "flows": 1024,
            "signatures": [{"file": rules, "dialect": "suricata"}],
        },
    })
    made.start()
    yield made
    made.stop()


def _fetch(host, url, seconds):
    target = os.path.join(host.folder, "fetched")
    if os.path.exists(target):
        os.remove(target)
    host.run("curl", "-s", "-g", "-m", seconds, "-o", target, url, check=False, timeout=seconds + 30)
    if not os.path.exists(target):
        return b""
    with open(target, "rb") as file:
        return file.read()


def _sent_again(host):
    """Number of segments that the TCP of a host has retransmitted."""
    return int(host.run("nstat", "-asz", "TcpRetransSegs").split()[-2])


@pytest.mark.parametrize("family", ["address", "address6"])
def test_files_arrive_whole_over_a_link_that_loses_packets(topology, gateway, services, family):
    address = getattr(topology.server, family)
    url = f"http://[{address}]/download.bin" if ":" in address else f"http://{address}/download.bin"
    before = _sent_again(topology.server)
    for number in range(TRANSFERS):
        content = _fetch(topology.alice, url, 60)
        assert services.digest == hashlib.sha256(content).hexdigest(), f"transfer {number}, of {len(content)} bytes"
    assert _sent_again(topology.server) > before, "the link loses packets"


def test_file_that_matches_does_not_arrive_over_a_link_that_loses_packets(topology, gateway, services):
    before = gateway.drops().get("signature", 0)
    for _ in range(TRANSFERS // 2):
        content = _fetch(topology.alice, f"http://{topology.server.address}/eicar.com", 3)
        assert b"EICAR-STANDARD-ANTIVIRUS-TEST-FILE" not in content
    assert gateway.drops()["signature"] > before
