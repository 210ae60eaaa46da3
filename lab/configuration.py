"""The configuration of Sluice for the lab's topology."""

import copy
import json

from lab.topology import FORWARDED


def standard():
    """A configuration with NAT of both inside networks to a pool, routed IPv6, one forwarded port, and small tables."""
    return {
        "system": {"name": "lab", "workers": 1},
        "sessions": {"ipv4": 16384, "ipv6": 4096},
        "control": {"socket": "/run/lab/control", "log": "debug"},
        "interfaces": {
            "inside1": _interface("inside1", "192.168.1.1/24", "2001:db8:1::1/64"),
            "inside2": _interface("inside2", "192.168.2.1/24", "2001:db8:2::1/64"),
            "outside": _interface("outside", "198.51.100.2/25", "2001:db8:a::2/64"),
        },
        "routes": [
            {"to": "0.0.0.0/0", "via": "198.51.100.1"},
            {"to": "::/0", "via": "2001:db8:a::1"},
        ],
        "nat": {
            # The filtering behaviour equals that of Linux, because Linux runs the same tests.
            "pools": {
                "carrier": {"addresses": ["203.0.113.16/28"], "filtering": "address-and-port-dependent"},
            },
            "source": [{"from": "192.168.0.0/16", "out": "outside", "pool": "carrier"}],
            "destination": [
                {"protocol": "tcp", "address": FORWARDED, "port": 8080, "to": "192.168.1.2", "to-port": 80},
                {"protocol": "udp", "address": FORWARDED, "port": 5353, "to": "192.168.1.2"},
            ],
        },
    }


def _interface(device, *addresses):
    return {"device": device, "addresses": list(addresses)}


def beside_others(document):
    """The document with a setting that puts packet buffers into ordinary pages, if the document has no such setting.

    Gateways of other test shards start simultaneously, and could take the free hugepages that this gateway has counted.
    """
    return changed({"system": {"hugepages": "off"}}, **document)


def changed(document, **tables):
    """A copy in which tables are merged: `changed(standard(), system={"shards": 4})`."""
    result = copy.deepcopy(document)
    _merge(result, {name.replace("_", "-"): value for name, value in tables.items()})
    return result


def _merge(into, what):
    for key, value in what.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def text(document):
    """The document as TOML. Only tables that contain tables have headers; all lower levels are inline."""
    lines = []
    for name, table in document.items():
        if isinstance(table, list):
            for entry in table:
                lines += [f"[[{name}]]", *_pairs(entry), ""]
            continue
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        if plain:
            lines += [f"[{name}]", *_pairs(plain), ""]
        for key, value in table.items():
            if isinstance(value, dict):
                lines += [f"[{name}.{_key(key)}]", *_pairs(value), ""]
    return "\n".join(lines)


def _pairs(table):
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key):
    return key if key.replace("-", "").replace("_", "").isalnum() else json.dumps(key)


def _value(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(_pairs(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value)
