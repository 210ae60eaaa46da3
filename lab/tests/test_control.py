"""Tests the command line with the running daemon."""

import json
import os
import stat

import pytest

from lab import configuration, waiting
from lab.pings import unanswered
from lab.topology import POOL

pytestmark = [pytest.mark.sluice, pytest.mark.usefixtures("gateway", "services")]

LISTS = ["interfaces", "sessions", "subscribers", "routes", "neighbours", "cores", "drops"]


def _routes(gateway):
    """The routes without their age."""
    return [{**row, "age": None} for row in gateway.show("routes")["routes"]]


def _session_of(gateway, port, *filters):
    """The listed sessions with this inside source port."""
    rows = gateway.show("sessions", *filters)["sessions"]
    return [row for row in rows if row["forward"]["source-port"] == port]


@pytest.fixture
def conversation(topology):
    """UDP packets between alice and the server in both directions, and the ports of both hosts."""
    with topology.server.open_socket() as answering, topology.alice.open_socket() as asking:
        answering.bind((topology.server.address, 0))
        asking.connect(answering.getsockname())
        asking.send(b"one")
        _, outside = answering.recvfrom(100)
        answering.sendto(b"two", outside)
        asking.recv(100)
        yield asking, answering


@pytest.mark.parametrize("what", LISTS)
def test_every_list_is_text_for_people_and_json_for_programs(gateway, what):
    assert gateway.command("show", what).strip()
    rows = gateway.show(what)[what]
    assert isinstance(rows, list)


def test_session_shows_both_directions_and_counts(topology, gateway, conversation):
    asking, answering = conversation
    port = asking.getsockname()[1]
    (session,) = _session_of(gateway, port)
    assert "udp" == session["protocol"]
    assert topology.alice.address == session["forward"]["source"]
    assert topology.server.address == session["forward"]["destination"]
    assert session["reverse"]["destination"] in POOL
    assert (1, 1) == (session["forward"]["packets"], session["reverse"]["packets"])


@pytest.mark.parametrize("side", ["inside", "server", "outside"])
def test_session_is_found_by_an_address_of_either_direction(topology, gateway, conversation, side):
    asking, _ = conversation
    port = asking.getsockname()[1]
    (session,) = _session_of(gateway, port)
    address = {
        "inside": topology.alice.address,
        "server": topology.server.address,
        "outside": session["reverse"]["destination"],
    }[side]
    assert [session["forward"]] == [row["forward"] for row in _session_of(gateway, port, "--address", address)]
    assert [] == _session_of(gateway, port, "--address", "192.0.2.1")


def test_session_is_found_by_a_port_of_either_direction(gateway, conversation):
    asking, answering = conversation
    port = asking.getsockname()[1]
    (session,) = _session_of(gateway, port)
    for wanted in (port, answering.getsockname()[1], session["reverse"]["destination-port"]):
        assert 1 == len(_session_of(gateway, port, "--port", wanted))
    assert [] == _session_of(gateway, port, "--port", port ^ 1)


def test_sessions_in_the_form_of_conntrack_are_as_conntrack_writes_them(topology, gateway, conversation):
    asking, answering = conversation
    lines = gateway.command("show", "sessions", "--conntrack").splitlines()
    port = asking.getsockname()[1]
    (line,) = [line for line in lines if f"sport={port} " in line.split("src=")[1]]
    words = line.split()
    assert "udp" == words[0] and "17" == words[1]
    assert f"src={topology.alice.address}" == words[3]
    assert f"dport={answering.getsockname()[1]}" in words


def test_cleared_sessions_are_gone_and_others_stay(topology, gateway, conversation):
    asking, _ = conversation
    port = asking.getsockname()[1]
    with topology.bob.open_socket() as other:
        other.sendto(b"bob", (topology.server.address, 53))
        other_port = other.getsockname()[1]
        waiting.until(lambda: _session_of(gateway, other_port), "bob's session")
        gateway.command("clear", "sessions", "--address", topology.alice.address)
        waiting.until(lambda: not _session_of(gateway, port), "alice's session to be gone")
        assert _session_of(gateway, other_port)


def _text(endpoint):
    return f"{endpoint['address']}:{endpoint['port']}"


def test_mapping_is_found_by_either_side_and_cleared_with_its_sessions(topology, gateway, conversation):
    asking, _ = conversation
    inside = f"{topology.alice.address}:{asking.getsockname()[1]}"
    (mapping,) = gateway.show("mapping", "--inside", inside)["mappings"]
    assert ("udp", 1, inside) == (mapping["protocol"], mapping["sessions"], _text(mapping["inside"]))
    assert mapping["outside"]["address"] in POOL
    assert [mapping] == gateway.show("mapping", "--outside", _text(mapping["outside"]))["mappings"]
    assert inside in gateway.command("show", "mapping", "--inside", inside)
    gateway.command("clear", "mappings", "--inside", inside)
    waiting.until(lambda: not gateway.show("mapping", "--inside", inside)["mappings"], "the mapping to be gone")
    assert not _session_of(gateway, asking.getsockname()[1])


def test_nat_shows_pools_and_subscribers_with_what_they_use(topology, gateway, conversation):
    nat = gateway.show("nat")
    (pool,) = nat["pools"]
    assert pool["used"]["udp"] >= 1 and pool["subscribers"] >= 1
    (alice,) = gateway.show("subscribers", "--inside", topology.alice.address)["subscribers"]
    assert alice in nat["subscribers"]
    assert alice["ports"]["udp"] >= 1 and alice["sessions"] >= 1
    assert [] == gateway.show("subscribers", "--inside", "192.0.2.1")["subscribers"]
    assert alice["address"] in gateway.command("show", "nat")
    gateway.command("clear", "sessions", "--subscriber", topology.alice.address)
    waiting.until(
        lambda: not gateway.show("subscribers", "--inside", topology.alice.address)["subscribers"],
        "the subscriber to be gone",
    )


def test_blocks_of_a_subscriber_hold_its_ports(topology, gateway, conversation):
    asking, answering = conversation
    original = gateway.document
    gateway.apply(_with_pool(original, *POOL, block={"size": 128}))
    waiting.until(lambda: not _session_of(gateway, asking.getsockname()[1]), "the session of the other ways to end")
    asking.send(b"again")
    _, (address, port) = answering.recvfrom(100)
    found = gateway.show("mapping", "--outside", f"{address}:{port}")
    (block,) = found["blocks"]
    assert topology.alice.address == block["subscriber"]
    assert 128 == block["span"]["last"] - block["span"]["first"] + 1
    assert block["span"]["first"] <= port <= block["span"]["last"] and block["used"]["udp"] >= 1
    assert found["mappings"][0]["outside"] == {"address": address, "port": port}
    assert gateway.show("nat")["pools"][0]["blocks"]["used"] >= 1
    gateway.apply(original)


def test_rfc7422_port_of_a_deterministic_pool_is_the_one_that_is_computed(topology, gateway, conversation):
    asking, answering = conversation
    original = gateway.document
    deterministic = {"inside": "192.168.0.0/22", "compression": 64, "algorithm": "staggered"}
    pool = _with_pool(original, *POOL, deterministic=deterministic)
    gateway.apply(pool)
    asking.send(b"again")
    _, (address, port) = answering.recvfrom(100)
    (share,) = gateway.show("mapping", "--outside", f"{address}:{port}")["shares"]
    assert topology.alice.address == share["inside"]
    assert [share] == gateway.show("mapping", "--inside", topology.alice.address)["shares"]
    # The command has the same result without the daemon.
    words = ["show", "mapping", "--config", gateway.write(pool, "then.toml"), "--outside", f"{address}:{port}"]
    assert [share] == json.loads(gateway.command(*words, "--json"))["shares"]
    gateway.apply(original)


def test_apply_under_traffic_loses_nothing(topology, gateway):
    original = gateway.document
    ping = topology.alice.spawn("ping", "-n", "-i", "0.02", "-c", "150", "-w", "15", topology.server.address)
    ping.wait_for_line("icmp_seq=5 ")
    for number in range(5):
        route = {"to": f"192.0.2.{16 * number}/28", "action": "blackhole"}
        gateway.apply({**original, "routes": [*original["routes"], route]})
        assert any("192.0.2." in row["to"] for row in gateway.show("routes")["routes"])
    gateway.apply(original)
    assert 0 == ping.wait(20)
    assert [] == unanswered(ping.output, 150)


def _with_pool(document, *addresses, **others):
    pool = {"carrier": {"addresses": list(addresses), **others}}
    return {**document, "nat": {**document["nat"], "pools": pool}}


def _leases(gateway, address):
    """Public addresses of an inside host's sessions."""
    rows = gateway.show("sessions", "--inside", address)["sessions"]
    return {row["reverse"]["destination"] for row in rows if row.get("pool")}


def test_apply_of_other_pools_under_traffic_keeps_what_stays_and_ends_the_rest(topology, gateway, conversation):
    asking, answering = conversation
    original = gateway.document
    ping = topology.alice.spawn("ping", "-n", "-i", "0.02", "-c", "150", "-w", "15", topology.server.address)
    ping.wait_for_line("icmp_seq=5 ")
    # All sessions of a host share its public address (RFC 4787, REQ-2).
    (public,) = _leases(gateway, topology.alice.address)
    (port,) = [row["reverse"]["destination-port"] for row in _session_of(gateway, asking.getsockname()[1])]
    others = [address for address in POOL if address != public]
    for addresses in [[public], [public, *others[:3]], [*others, public]]:
        gateway.apply(_with_pool(original, *addresses, ports="1024-65534"))
        gateway.apply(_with_pool(original, *addresses, pairing="soft"))
        asking.send(b"more")
        assert (b"more", (public, port)) == answering.recvfrom(100)
    assert 0 == ping.wait(20)
    assert [] == unanswered(ping.output, 150)

    gateway.apply(_with_pool(original, *others))
    waiting.until(lambda: public not in _leases(gateway, topology.alice.address), "the sessions without a port to end")
    asking.send(b"again")
    data, (address, _) = answering.recvfrom(100)
    assert b"again" == data and address in others
    counters = {row["name"]: row["count"] for core in gateway.show("cores")["cores"] for row in core["counters"]}
    assert counters["sessions-withdrawn"] >= 1
    gateway.apply(original)


def test_apply_of_more_addresses_than_there_is_memory_for_is_refused_with_a_hint(topology, gateway):
    before = gateway.show("sessions")["sessions"]
    path = gateway.write(_with_pool(gateway.document, "203.0.113.16/28", "192.0.2.0/24"), "large.toml")
    output = gateway.command("apply", path, check=False)
    assert "large.toml:" in output and "bytes for port allocation" in output and "spare-addresses" in output
    assert len(before) == len(gateway.show("sessions")["sessions"])


def test_apply_of_a_wrong_configuration_is_refused_whole_and_the_running_one_goes_on(topology, gateway):
    before = _routes(gateway)
    wrong = configuration.text(gateway.document).replace('pool = "carrier"', 'pool = "carier"')
    output = gateway.command("apply", gateway.write(wrong, "wrong.toml"), check=False)
    assert "wrong.toml:" in output and "carier" in output
    assert before == _routes(gateway)
    topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)


def test_trace_shows_the_verdict_of_every_node(topology, gateway):
    trace = topology.gateway.spawn(
        gateway.binary, "trace", "--count", "2", "--address", topology.server.address, "--json",
        "--socket", gateway.document["control"]["socket"],
    )

    def traced():
        topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)
        return not trace.running

    waiting.until(traced, "two packets to be traced")
    packets = [json.loads(line) for line in trace.output.splitlines()]
    assert 2 == len(packets)
    for packet in packets:
        nodes = [step["node"] for step in packet["steps"]]
        # Packets that were queued for a neighbour, or come from another worker, are already parsed.
        assert nodes[0] in ["parse", "arrive"]
        assert len(nodes) >= 3


def test_capture_of_an_interface_is_read_by_tshark(topology, gateway, folder):
    path = os.path.join(folder, "inside1.pcapng")
    capture = topology.gateway.spawn(
        gateway.binary, "capture", "--interface", "inside1", "--count", "6", "--write", path,
        "--socket", gateway.document["control"]["socket"],
    )

    def captured():
        topology.alice.run("ping", "-n", "-c", "1", "-W", "5", topology.server.address)
        return not capture.running

    waiting.until(captured, "six packets to be captured")
    lines = topology.gateway.run("tshark", "-n", "-r", path, "-T", "fields", "-e", "ip.src", "-e", "icmp.type")
    rows = [line.split("\t") for line in lines.splitlines() if "\t" in line]
    assert [topology.alice.address, "8"] in rows
    assert [topology.server.address, "0"] in rows


def test_capture_of_dropped_packets_names_the_reason(topology, gateway, folder):
    path = os.path.join(folder, "dropped.pcapng")
    capture = topology.gateway.spawn(
        gateway.binary, "capture", "--dropped", "--count", "1", "--write", path,
        "--socket", gateway.document["control"]["socket"],
    )

    def captured():
        with topology.server.open_socket() as stranger:
            stranger.sendto(b"anyone?", (POOL[3], 4003))
        return not capture.running

    waiting.until(captured, "a dropped packet to be captured")
    output = topology.gateway.run("tshark", "-n", "-r", path, "-V")
    assert "unsolicited" in output and POOL[3] in output


def test_control_socket_is_for_its_owner_alone(gateway):
    mode = os.stat(gateway.document["control"]["socket"]).st_mode
    assert stat.S_ISSOCK(mode)
    assert 0o600 == stat.S_IMODE(mode)


def test_command_without_a_daemon_says_so(gateway, topology):
    output = topology.gateway.run(
        gateway.binary, "show", "sessions", "--socket", "/run/lab/nobody", check=False
    )
    assert "/run/lab/nobody" in output and "sluice run" in output


def test_cores_show_what_each_worker_does(topology, gateway):
    topology.alice.run("ping", "-n", "-c", "5", "-i", "0.02", topology.server.address)
    (core,) = gateway.show("cores")["cores"]
    assert core["packets"] >= 10
    assert 0 == core["leaked"]


def test_received_is_sent_dropped_or_still_there(topology, gateway):
    """received + originated + unparked = sent + drops + to host + parked, over all interfaces."""
    for host in (topology.alice, topology.bob):
        host.run("ping", "-n", "-c", "20", "-i", "0.01", topology.server.address)

    def balanced():
        rows = gateway.show("interfaces")["interfaces"]
        totals = [
            row["received"] + row["originated"] + row["unparked"] - row["sent"] - row["dropped"] - row["to-host"] - row["parked"]
            for row in rows
        ]
        return 0 == sum(totals) and sum(row["received"] for row in rows) >= 80

    waiting.until(balanced, "the counters to balance")


def test_drops_are_explained(gateway):
    rows = gateway.show("drops")["drops"]
    assert all(row["help"] for row in rows)
    assert len(rows) == len({row["name"] for row in rows})
