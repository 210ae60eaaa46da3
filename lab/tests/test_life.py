"""Tests start and end of the daemon, and the conditions under which it refuses to start."""

import re
import signal

import pytest

from lab import configuration, waiting
from lab.gateway import Sluice
from lab.topology import Topology

pytestmark = pytest.mark.sluice


@pytest.fixture
def topology():
    made = Topology()
    yield made
    made.remove()


def _refusal(topology, binary, document, *words):
    """The output of `sluice run` when it refuses to start."""
    gateway = Sluice(topology.gateway, binary)
    process = topology.gateway.spawn(binary, "run", "-c", gateway.write(document), *words, label="refused")
    assert 0 != process.wait(20)
    return process.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signal_ends_in_order_and_prints_the_counters(topology, binary, number):
    gateway = Sluice(topology.gateway, binary)
    gateway.start()
    topology.alice.run("ping", "-n", "-c", "3", "-i", "0.02", "-w", "5", topology.server.address)
    gateway.process.signal(number)
    assert 0 == gateway.process.wait(15), gateway.process.output
    assert "received" in gateway.process.output and "sent" in gateway.process.output
    # The interfaces are returned to the kernel, without an attached XDP program.
    for interface in ("inside1", "inside2", "outside"):
        assert "xdp" not in topology.gateway.run("ip", "-d", "link", "show", "dev", interface)


def test_started_again_after_a_kill_it_forwards(topology, binary):
    for _ in range(2):
        gateway = Sluice(topology.gateway, binary)
        gateway.start()
        topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)
        gateway.process.signal(signal.SIGKILL)
        gateway.process.wait()
    gateway = Sluice(topology.gateway, binary)
    gateway.start()
    topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)
    gateway.stop()


def test_second_daemon_on_the_same_socket_is_refused(topology, binary):
    gateway = Sluice(topology.gateway, binary)
    gateway.start()
    output = _refusal(topology, binary, configuration.standard())
    assert gateway.document["control"]["socket"] in output
    topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)
    gateway.stop()


def test_unknown_device_is_refused_by_name(topology, binary):
    document = configuration.changed(configuration.standard(), interfaces={"outside": {"device": "nowhere0"}})
    assert "nowhere0" in _refusal(topology, binary, document)


def test_table_too_large_for_the_memory_is_refused_with_both_sizes(topology, binary):
    document = configuration.changed(configuration.standard(), sessions={"ipv4": 4_000_000_000})
    output = _refusal(topology, binary, document)
    assert "sluice.toml:" in output
    assert 2 <= len(re.findall(r"\d+(?:\.\d+)? ?[GT]i?B", output))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("[sessions]", "[sessions]\nipv5 = 3"), "ipv5"),
        (("198.51.100.2/25", "198.51.100.2/33"), "198.51.100.2/33"),
        (('"203.0.113.16/28"', '"203.0.113.16/28", "203.0.113.20"'), "203.0.113.20"),
        (('pool = "carrier"', 'pool = "carier"'), "carier"),
        (("workers = 1", "workers = 1000"), "1000"),
        (("[control]", "[control"), "control"),
    ],
    ids=["unknown-key", "bad-address", "overlapping-pool", "unknown-pool", "too-many-workers", "syntax"],
)
def test_wrong_configuration_is_refused_with_file_and_line(topology, binary, wrong, says):
    text = configuration.text(configuration.standard())
    assert wrong[0] in text
    line = text[: text.index(wrong[0])].count("\n") + 1
    gateway = Sluice(topology.gateway, binary)
    path = gateway.write(text.replace(*wrong, 1), "wrong.toml")
    for command in (["check", path], ["run", "-c", path]):
        output = topology.gateway.run(binary, *command, check=False)
        named = re.search(r"wrong\.toml:(\d+)", output)
        assert named, output
        assert abs(line - int(named.group(1))) <= 1, output
        assert says in output


def test_check_prints_what_would_run(topology, binary):
    gateway = Sluice(topology.gateway, binary)
    output = topology.gateway.run(binary, "check", gateway.write())
    for expected in ["inside1", "inside2", "outside", "AF_XDP", "MiB"]:
        assert expected in output


def test_check_says_beforehand_that_jumbo_frames_need_af_packet(topology, binary):
    interfaces = {name: {"mtu": 9000} for name in ("inside1", "inside2", "outside")}
    gateway = Sluice(topology.gateway, binary, configuration.changed(configuration.standard(), interfaces=interfaces))
    output = topology.gateway.run(binary, "check", gateway.write())
    assert "AF_PACKET" in output and "9000" in output


def test_lost_privileges_are_named_with_what_to_do(topology, binary):
    gateway = Sluice(topology.gateway, binary)
    output = topology.gateway.run(
        "setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", binary, "run", "-c", gateway.write(),
        check=False, timeout=20,
    )
    assert "permission" in output.lower() or "capabilit" in output.lower()


def test_device_taken_away_while_running_is_told_and_the_rest_goes_on(topology, binary):
    gateway = Sluice(topology.gateway, binary)
    gateway.start()
    topology.bob.run("ip", "link", "set", "eth0", "down")
    waiting.until(
        lambda: any(row["name"] == "inside2" and row["link"] == "down" for row in gateway.show("interfaces")["interfaces"]),
        "inside2 to be shown as down",
    )
    topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)
    gateway.stop()
