"""Two gateways with a bond of two kernel interfaces between them."""

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.host import Host, connect

pytestmark = pytest.mark.sluice

MEMBERS = ["left", "right"]
CLIENT, SERVER = "10.0.0.2", "192.0.2.130"
SERVER6 = "2001:db8:2::130"


def gateway(host, binary, number, lan, lan6, to, to6):
    """A gateway with its end of the bond."""
    other = 3 - number
    return Sluice(host, binary, {
        "system": {"name": host.name, "workers": 1},
        "sessions": {"ipv4": 1024, "ipv6": 1024},
        "control": {"socket": f"/run/lab/{host.name}", "log": "debug"},
        "interfaces": {
            "trunk": {"bond": {"members": MEMBERS}, "addresses": [f"192.0.2.{number}/25", f"2001:db8:f::{number}/64"]},
            "lan": {"device": "lan", "addresses": [lan, lan6]},
        },
        "routes": [{"to": to, "via": f"192.0.2.{other}"}, {"to": to6, "via": f"2001:db8:f::{other}"}],
    })


@pytest.fixture(scope="module")
def place(tmp_path_factory, binary):
    """The client, the near gateway, the far gateway, and the server."""
    folder = str(tmp_path_factory.mktemp("bonds"))
    client, near, far, server = hosts = [Host(name, folder) for name in ("client", "near", "far", "server")]
    try:
        for member in MEMBERS:
            connect(near, member, far, member)
        for owner, end, address, address6, via, via6 in [
            (near, client, f"{CLIENT}/24", "2001:db8:1::2/64", "10.0.0.1", "2001:db8:1::1"),
            (far, server, f"{SERVER}/25", f"{SERVER6}/64", "192.0.2.129", "2001:db8:2::129"),
        ]:
            connect(owner, "lan", end, "eth0")
            end.run("ip", "address", "add", address, "dev", "eth0")
            end.run("ip", "-6", "address", "add", address6, "dev", "eth0", "nodad")
            end.run("ip", "route", "add", "default", "via", via)
            end.run("ip", "-6", "route", "add", "default", "via", via6)
        gateways = [
            gateway(near, binary, 1, "10.0.0.1/24", "2001:db8:1::1/64", "192.0.2.128/25", "2001:db8:2::/64"),
            gateway(far, binary, 2, "192.0.2.129/25", "2001:db8:2::129/64", "10.0.0.0/24", "2001:db8:1::/64"),
        ]
        for made in gateways:
            made.start()
        yield client, near, far, gateways
        for made in gateways:
            assert "packet buffers leaked" not in made.stop()
    finally:
        for host in hosts:
            host.remove()


def reaches(host, address):
    return "1 received" in host.run("ping", "-n", "-c", "1", "-W", "1", address, check=False)


def test_bond_of_kernel_interfaces_resolves_neighbours_and_goes_on_without_a_member(place):
    client, near, far, gateways = place
    waiting.until(lambda: reaches(client, SERVER), "LACP to agree, and ARP by the bond", 30)
    waiting.until(lambda: reaches(client, SERVER6), "neighbour discovery by the bond", 10)
    for host in (near, far):
        host.run("ip", "link", "set", MEMBERS[0], "down")
    for made in gateways:
        made.process.wait_for_line("the member left is gone, .* or without a carrier")
    waiting.until(lambda: reaches(client, SERVER), "pings by the member that is left", 30)
    for made in gateways:
        assert "up" == {row["name"]: row["link"] for row in made.show("interfaces")["interfaces"]}["trunk"]
    for host in (near, far):
        host.run("ip", "link", "set", MEMBERS[0], "up")
    for made in gateways:
        made.process.wait_for_line("the member left is back", 30)
    waiting.until(lambda: reaches(client, SERVER6), "pings by both members again", 30)


def test_kernel_interfaces_take_multicasts_while_they_are_open(place):
    _, near, _, _ = place
    for name in [*MEMBERS, "lan"]:
        flags = int(near.run("cat", f"/sys/class/net/{name}/flags").strip(), 16)
        assert flags & 0x200, f"{name}: flags {flags:#x} without IFF_ALLMULTI"
