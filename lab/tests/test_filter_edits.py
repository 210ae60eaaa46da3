"""Tests that single rules of the packet filter are inserted and removed while traffic passes."""

import json

import pytest

from lab import configuration, waiting

pytestmark = pytest.mark.sluice

RULES = [
    {"name": "ping", "action": "accept", "icmp": "echo-request"},
    {"name": "web", "action": "accept", "to-port": 80, "protocol": "tcp", "from": "@inside"},
]


@pytest.fixture(scope="module")
def document():
    made = configuration.standard()
    made["filter"] = {"addresses": {"inside": ["192.168.0.0/16", "2001:db8:1::/64"]}, "rules": RULES}
    return made


def _names(gateway):
    return [rule["name"] for rule in gateway.show("filter")["rules"]]


def _edit(gateway, *words):
    return json.loads(gateway.command("filter", *words, "--json"))


def _pings(client, address):
    return "1 received" in client.run("ping", "-c", "1", "-W", "1", address, check=False)


def test_rule_comes_in_force_for_flows_under_way_too_and_goes(topology, gateway):
    pinging = topology.alice.spawn("ping", "-i", "0.1", "-w", "20", topology.server.address, label="pinging")
    waiting.until(lambda: pinging.output.count("time=") > 2, "the ping to pass", 5)
    dropped = gateway.drops().get("filter-drop", 0)
    rule = f'name = "deny", action = "drop", to = "{topology.server.address}"'
    assert {"outcome": "done", "count": 1, "rules-in-all": 3, "built-anew": False} == _edit(gateway, "insert", rule)
    # The rule applies to new flows immediately, and to existing flows within a second.
    assert not _pings(topology.alice, topology.server.address)
    waiting.until(lambda: gateway.drops()["filter-drop"] > dropped + 1, "the ping to be dropped", 1)
    answered = pinging.output.count("time=")
    dropped = gateway.drops()["filter-drop"]
    waiting.until(lambda: gateway.drops()["filter-drop"] > dropped + 3, "more of it to be dropped", 3)
    assert answered == pinging.output.count("time=")
    denied = gateway.show("filter")["rules"][0]
    assert ("deny", True) == (denied["name"], denied["inserted"]) and denied["packets"] >= 3
    decision = gateway.show("filter", "--match", f"icmp {topology.alice.address} > {topology.server.address}")["decision"]
    assert ("drop", "deny") == (decision["verdict"], decision["rule"]["name"])
    assert "(inserted)" in gateway.command("show", "filter")
    assert 2 == _edit(gateway, "remove", "deny")["rules-in-all"]
    waiting.until(lambda: pinging.output.count("time=") > answered, "the ping to pass again", 3)
    pinging.stop()


def test_rules_of_a_file_come_side_by_side_where_they_are_wanted(topology, gateway):
    path = gateway.write(
        '[[filter.rules]]\nname = "one"\naction = "drop"\nfrom = "@inside"\nto-port = 8080\n'
        '[[filter.rules]]\nname = "two"\naction = "count"\n',
        "rules.toml",
    )
    # Rules after which evaluation continues can't be changed in place.
    assert _edit(gateway, "insert", "--file", path, "--before", "web")["built-anew"]
    assert ["ping", "one", "two", "web"] == _names(gateway)
    assert "1 inserted" in gateway.command("filter", "insert", 'name = "end", action = "reject"', "--last")
    assert ["ping", "one", "two", "web", "end"] == _names(gateway)
    assert _pings(topology.alice, topology.server.address)
    # A commit restores the rules of its file.
    gateway.apply({**gateway.document, "routes": gateway.document.get("routes", [])})
    assert ["ping", "web"] == _names(gateway)


def test_many_rules_come_and_go_and_are_folded(topology, gateway):
    rules = "".join(
        f'[[filter.rules]]\nname = "host-{n}"\naction = "drop"\nfrom = "10.{n // 250}.{n % 250}.1"\n' for n in range(400)
    )
    for _ in range(3):
        assert 402 == _edit(gateway, "insert", "--file", gateway.write(rules, "many.toml"))["rules-in-all"]
        assert _pings(topology.alice, topology.server.address)
        assert "host-399" == gateway.show("filter", "--match", "udp 10.1.149.1:1 > 192.0.2.1:2")["decision"]["rule"]["name"]
        assert 2 == _edit(gateway, "remove", *(f"host-{n}" for n in range(400)))["rules-in-all"]
    assert "default" not in str(gateway.show("filter", "--match", f"icmp {topology.alice.address} > 192.0.2.1")["decision"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["insert", 'action = "drop"'], "an inserted rule needs a name"),
        (["insert", 'name = "x", action = "drop", to = "@nobody"'], "there is no group of addresses named `nobody`"),
        (["insert", 'name = "x", action = "drop", from-port = "9-1"'], "9-1"),
        (["insert", 'name = "web", action = "drop"'], "there is a rule `web` already"),
        (["insert", 'name = "x", action = "drop"', "--before", "nothing"], "there is no rule `nothing`"),
        (["insert", 'name = "x", action = "drop"', 'name = "x", action = "drop"'], "the same name"),
        (["insert", 'name = "7", action = "drop"'], "`7` is a number"),
        (["remove", "web", "nothing"], "there is no rule `nothing`"),
    ],
)
def test_wrong_rule_is_refused_and_nothing_changes(gateway, words, said):
    assert said in gateway.command("filter", *words, check=False)
    assert ["ping", "web"] == _names(gateway)


def test_file_with_more_than_rules_is_refused(gateway):
    path = gateway.write('[filter]\ndefault = "accept"\n[[filter.rules]]\nname = "x"\naction = "drop"\n', "more.toml")
    assert "only filter rules can be inserted" in gateway.command("filter", "insert", "--file", path, check=False)
    assert ["ping", "web"] == _names(gateway)


def test_file_of_many_megabytes_is_taken_whole(topology, gateway):
    rule = '[[filter.rules]]\nname = "host-{}"\naction = "drop"\nfrom = "10.{}.{}.{}"\nto = "192.0.2.0/24"\n'
    rules = "".join(rule.format(n, n >> 16, n >> 8 & 255, n & 255) for n in range(30_000))
    assert len(rules) > 2 << 20
    answer = _edit(gateway, "insert", "--last", "--file", gateway.write(rules, "large.toml"))
    assert (30_000, 30_002) == (answer["count"], answer["rules-in-all"])
    assert _pings(topology.alice, topology.server.address)
    gateway.apply(gateway.document)
    assert ["ping", "web"] == _names(gateway)
