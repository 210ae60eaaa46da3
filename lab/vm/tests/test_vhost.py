"""Tests Sluice on the host and a Linux guest behind its vhost-user socket, with one queue and with two queues.
Either program can restart."""

import os

import pytest

from lab import waiting
from lab.gateway import Sluice
from lab.host import Host, connect
from lab.vm import image
from lab.vm.guest import Guest
from lab.vm.lanes import Files

MEMORY = 512
SERVER, GUEST = "192.0.2.1", "10.1.0.2"


@pytest.fixture(scope="module", params=[1, 2], ids=["one-queue", "two-queues"])
def queues(request):
    return request.param


@pytest.fixture(scope="module")
def place(folder, queues):
    """The host, a server beyond its uplink, and the path of the socket."""
    path = os.path.join(folder, f"vhost-{queues}")
    os.makedirs(path)
    host, server = Host("hypervisor", path), Host("server", path)
    host.setting("net.ipv6.conf.default.disable_ipv6=1")
    connect(host, "uplink", server, "eth0")
    server.run("ip", "address", "add", f"{SERVER}/24", "dev", "eth0")
    files = Files(server)
    yield host, server, files
    files.stop()
    host.remove()
    server.remove()


@pytest.fixture(scope="module")
def gateway(place, binary, queues):
    host = place[0]
    made = Sluice(host, binary, {
        "system": {"name": "hypervisor", "workers": queues},
        "sessions": {"ipv4": 4096, "ipv6": 1024},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {
            "web": {"device": f"vhost:{host.folder}/web.sock", "addresses": ["10.1.0.1/24"]},
            "uplink": {"device": "uplink", "addresses": ["192.0.2.2/24"]},
        },
        "nat": {
            "pools": {"uplink": {"addresses": ["192.0.2.16/28"]}},
            "source": [{"from": "10.1.0.0/24", "out": "uplink", "pool": "uplink"}],
        },
    })
    made.start()
    yield made
    made.stop()


def boot(name, place, binary, queues):
    """A Linux guest behind the socket, with the card bound to a driver of the guest's kernel."""
    host = place[0]
    pairs = f",queues={queues}" if queues > 1 else ""
    made = Guest(name, host.folder, image.build(binary), memory=MEMORY, extra=[
        "-object", f"memory-backend-memfd,id=memory,size={MEMORY}M,share=on", "-numa", "node,memdev=memory",
        "-chardev", f"socket,id=socket,path={host.folder}/web.sock,reconnect=1", "-netdev", f"vhost-user,id=net,chardev=socket{pairs}",
        # MSI-X is disabled: without KVM, QEMU crashes with MSI-X when the guest's driver starts.
        "-device", f"virtio-net-pci,netdev=net,mac=52:54:00:00:00:01,romfile=,vectors=0{',mq=on' if queues > 1 else ''}",
    ])
    try:
        made.wait()
        made.sh("modprobe virtio_pci && modprobe virtio_net && modprobe af_packet", check=True)
        made.sh(f"ip link set eth0 up; ip address add {GUEST}/24 dev eth0; ip route add default via 10.1.0.1", check=True)
        wait_answer(made)
    except BaseException:
        made.stop()
        raise
    return made


def wait_answer(guest):
    """Wait until the server answers the guest."""
    waiting.until(lambda: guest.true(f"ping -c 1 -W 1 {SERVER}"), "the server to answer the guest", 60)


def carry(guest, files):
    """Transfer files in both directions, and compare their hashes."""
    assert files.digest in guest.sh(f"curl -sS --max-time 60 http://{SERVER}/ | sha256sum")
    sums = guest.sh(f"head -c 4194304 /dev/urandom >/tmp/up; sha256sum </tmp/up; curl -sS --max-time 60 -T /tmp/up http://{SERVER}/").split()
    assert sums[0] == sums[2]


@pytest.fixture
def guest(gateway, place, binary, queues):
    made = boot("linux", place, binary, queues)
    yield made
    made.stop()


def test_files_both_ways_and_restarts_of_either_side(gateway, place, binary, queues, guest):
    files = place[2]
    carry(guest, files)
    links = {row["name"]: (row["link"], row["queues"]) for row in gateway.show("interfaces")["interfaces"]}
    assert ("up", queues) == links["web"]
    # The gateway stops and restarts while the guest runs.
    gateway.stop()
    gateway.start()
    wait_answer(guest)
    carry(guest, files)
    # The guest ends, and another guest connects to the same socket.
    guest.stop()
    waiting.until(lambda: gateway.show("interfaces")["interfaces"][0]["link"] == "down", "the link to be down", 30)
    another = boot("another", place, binary, queues)
    try:
        carry(another, files)
    finally:
        another.stop()
