"""Tests changes of inspection rules by `sluice apply`. Existing flows lose no packets, and new rules take effect."""

import hashlib
import os

import pytest

from lab import configuration, waiting

pytestmark = pytest.mark.sluice

FIRST = 'drop tcp any any -> any any (msg:"first"; flow:to_client,established; content:"FIRST-TEST-FILE"; sid:1;)\n'
SECOND = 'drop tcp any any -> any any (msg:"second"; flow:to_client,established; content:"SECOND-TEST-FILE"; sid:2;)\n'
# Rate in bytes per second at which a download takes twice the time for which existing flows keep their rules.
SLOWLY = 400_000


@pytest.fixture(scope="module")
def folder(topology):
    return topology.gateway.folder


@pytest.fixture(scope="module")
def document(folder):
    _write(folder, FIRST)
    made = configuration.standard()
    made["inspection"] = {
        "interfaces": ["inside1", "inside2"],
        "eve": os.path.join(folder, "eve.json"),
        "cache": os.path.join(folder, "cache"),
        "flows": 4096,
        "signatures": [{"file": os.path.join(folder, "lab.rules"), "dialect": "suricata"}],
    }
    return made


@pytest.fixture(scope="module", autouse=True)
def served(services, gateway):
    for name in ("FIRST", "SECOND"):
        with open(os.path.join(services.folder, "files", name), "w", encoding="ascii") as file:
            file.write("padding " * 4000 + f"{name}-TEST-FILE" + " padding" * 4000)
    return services


def _write(folder, *rules):
    with open(os.path.join(folder, "lab.rules"), "w", encoding="ascii") as file:
        file.writelines(rules)


def _arrives(topology, name):
    target = os.path.join(topology.alice.folder, name)
    url = f"http://{topology.server.address}/{name}"
    topology.alice.run("curl", "-s", "-m", "4", "-o", target, url, check=False)
    if not os.path.exists(target):
        return False
    with open(target, "rb") as file:
        content = file.read()
    os.remove(target)
    return f"{name}-TEST-FILE".encode() in content


def _blocks(topology):
    return [name for name in ("FIRST", "SECOND") if not _arrives(topology, name)]


def _apply(gateway, *words, check=True):
    return gateway.command("apply", gateway.write(), *words, check=check)


def _is_even(gateway):
    status = gateway.show("inspection")
    sum_of = status["inspected"] + status["bypassed"] + status["dropped"] + status["waiting"]
    return status["received"] == sum_of


def test_download_under_way_arrives_whole_while_rules_change(topology, gateway, served, folder):
    assert ["FIRST"] == _blocks(topology)
    target = os.path.join(topology.alice.folder, "large")
    url = f"http://{topology.server.address}/download.bin"
    reopened = gateway.show("inspection")["reopened"]
    fetching = topology.alice.spawn("curl", "-s", "-m", "60", "--limit-rate", str(SLOWLY), "-o", target, url)
    waiting.until(lambda: os.path.getsize(target) > SLOWLY, "the download to begin")
    _write(folder, SECOND)
    output = _apply(gateway)
    assert "inspection.signatures changed" in output and "1 of 1 signatures are active" in output
    assert reopened == gateway.show("inspection")["reopened"]
    # The new rules apply to new flows immediately.
    assert ["SECOND"] == _blocks(topology)
    assert 0 == fetching.wait(60), gateway.show("inspection")["dropped-by-reason"]
    with open(target, "rb") as file:
        assert served.digest == hashlib.sha256(file.read()).hexdigest()
    assert gateway.show("inspection")["reopened"] > reopened
    waiting.until(lambda: _is_even(gateway), "the ledger to be even")
    (alert,) = [alert for alert in gateway.show("alerts")["alerts"] if alert["signature"] == 2]
    assert "second" == alert["message"]


def test_rules_that_are_the_same_are_left_alone(topology, gateway, folder):
    _write(folder, SECOND)
    _apply(gateway)
    assert "does not differ" in _apply(gateway)


def test_dry_run_says_what_would_be_and_changes_nothing(topology, gateway, folder):
    _write(folder, SECOND)
    _apply(gateway)
    _write(folder, FIRST, SECOND)
    output = _apply(gateway, "--dry-run")
    assert "2 of 2 signatures are active" in output and "nothing was changed" in output
    assert 1 == gateway.show("inspection")["signatures"]
    assert ["SECOND"] == _blocks(topology)


def test_rule_that_is_newly_refused_is_named_with_file_and_line(topology, gateway, folder):
    _write(folder, SECOND)
    _apply(gateway)
    _write(folder, SECOND, FIRST.replace("content", "dce_iface"))
    output = _apply(gateway)
    assert "1 of 2 signatures are active" in output and "lab.rules:2: dce_iface" in output
    _write(folder, SECOND.replace("second", "other"), FIRST.replace("content", "dce_iface"))
    output = _apply(gateway)
    assert "1 of 2 signatures are active" in output and "dce_iface" not in output
    assert [2] == [refused["line"] for refused in gateway.show("inspection")["refused"]]


@pytest.mark.parametrize(
    ("rules", "variables", "says"),
    [
        ("alert nonsense\n", {}, "lab.rules"),
        (None, {}, "lab.rules"),
        (FIRST, {"HOME_NET": "[10.0.0.0/8"}, "HOME_NET"),
    ],
    ids=["no-rule", "no-file", "wrong-variable"],
)
def test_rules_that_cannot_be_had_leave_those_that_run(topology, gateway, folder, rules, variables, says):
    _write(folder, SECOND)
    _apply(gateway)
    if rules is None:
        os.remove(os.path.join(folder, "lab.rules"))
    else:
        _write(folder, rules)
    changed = configuration.changed(gateway.document, inspection={"addresses": variables})
    path = gateway.write(changed, "changed.toml")
    for command in (["apply", path], ["apply", "--dry-run", path], ["check", path]):
        output = gateway.command(*command, check=False)
        assert "changed.toml:" in output and says in output, output
    assert ["SECOND"] == _blocks(topology)


def test_many_changes_under_load_lose_nothing(topology, gateway, folder):
    _write(folder, FIRST)
    _apply(gateway)
    before = gateway.show("inspection")
    load = topology.alice.spawn(
        "iperf3", "-c", topology.server.address, "-P", "4", "-b", "2M", "-t", "15", label="load"
    )
    waiting.until(lambda: gateway.show("inspection")["received"] > before["received"] + 1000, "the load to begin")
    changes = 0
    while load.running and changes < 40:
        _write(folder, [SECOND, FIRST][changes % 2])
        assert "signatures changed" in _apply(gateway)
        changes += 1
    assert changes > 4
    assert 0 == load.wait(60)
    after = gateway.show("inspection")
    # The servers retransmit the files that were blocked before, so packets of dropped flows are counted.
    usual = {"signature", "flow-dropped"}
    assert usual >= {why["reason"] for why in after["dropped-by-reason"]}
    assert after["reopened"] > before["reopened"]
    waiting.until(lambda: _is_even(gateway), "the ledger to be even")


def test_mode_and_policies_change_without_other_rules(topology, gateway, folder):
    _write(folder, SECOND)
    _apply(gateway)
    gateway.apply(configuration.changed(gateway.document, inspection={"mode": "detect"}))
    assert [] == _blocks(topology)
    gateway.apply(configuration.changed(gateway.document, inspection={"mode": "prevent"}))
    assert ["SECOND"] == _blocks(topology)


def test_restart_loads_what_was_compiled(topology, gateway, folder):
    _write(folder, FIRST, SECOND)
    _apply(gateway)
    made = gateway.show("inspection")["search"]
    assert not made["loaded"] and "other signatures" in made["why"]
    gateway.stop()
    gateway.start()
    assert gateway.show("inspection")["search"]["loaded"]
    assert ["FIRST", "SECOND"] == _blocks(topology)
