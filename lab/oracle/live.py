"""Sluice's daemon with the same links as Linux. The daemon is used to test functions that `sluice replay` lacks:
counters, and commits under traffic."""

import dataclasses
import os

from lab import configuration, gateway
from lab.oracle import packet
from lab.oracle.wires import MARK, Wires
from lab.oracle.world import INTERFACES, LINKS, LINKS6

# Neighbours between which markers are sent, without matching the rules.
MARKERS = {"name": "marker", "action": "accept", "protocol": "udp", "from-port": 9, "from": "192.0.2.9"}


class Live(Wires):
    """The daemon and the hosts around it. One daemon runs all worlds. Each world is applied as a commit."""

    def __init__(self, folder, binary):
        super().__init__(folder, "live", INTERFACES)
        self.folder, self.binary = folder, binary
        self.daemon = None
        # The counters of rules at the time of each commit.
        self.carried = []

    def remove(self):
        try:
            if self.daemon:
                self.daemon.stop()
        finally:
            super().remove()

    def play_changed(self, worlds, scenarios):
        if self.daemon:
            self.daemon.command("clear", "sessions", "--all")
        return super().play_changed(worlds, scenarios)

    def configure(self, world):
        document = self._document(world)
        with open(os.path.join(self.folder, "sluice.toml"), "w", encoding="utf-8") as file:
            file.write(configuration.text(document))
        if self.daemon:
            self.daemon.apply(document)
        else:
            self.daemon = gateway.Sluice(self.gateway, self.binary, document)
            self.daemon.start()
        # The default action and unchanged rules keep their counters through commits.
        self.carried.append(self._shown())

    def _document(self, world):
        """The configuration of a world with links instead of captures. It contains both families, because a commit
        can't add a family."""
        documents = [dataclasses.replace(world, six=six).document() for six in (False, True)]
        document = documents[world.six]
        document["control"] = {"socket": "/run/lab/live-control"}
        document["system"] = {"workers": 1, "shards": 4}
        document["sessions"] = {"ipv4": 65536, "ipv6": 65536}
        document["neighbours"] = {"static": [
            {"address": links[name][1], "mac": self.hosts.mac(name)} for links in (LINKS, LINKS6) for name in INTERFACES
        ]}
        document["routes"] = [route for other in documents for route in other["routes"]]
        for name, interface in document["interfaces"].items():
            interface["addresses"] = [address for other in documents for address in other["interfaces"][name]["addresses"]]
            interface["device"] = name
            del interface["mac"]
        document["filter"]["rules"].insert(0, MARKERS)
        return document

    def _markers(self, interface):
        # Markers take the same interfaces as the packets, because a worker processes each interface at a different
        # time. The second marker returns after all packets of the first marker's burst are sent.
        out = "inside1" if interface == "outside" else "outside"
        return [(interface, packet.udp((("192.0.2.9", 9), (LINKS[out][1], 9)), MARK))] * 2

    def counted(self):
        return {
            name: tuple(now - before for now, before in zip(counts, self.carried[-1][name]))
            for name, counts in self._shown().items()
        }

    def _shown(self):
        shown = self.daemon.show("filter")
        rows = [(rule["name"], rule) for rule in shown["rules"]] + [("default", shown["by-default"])]
        return {name: (row["packets"], row["bytes"]) for name, row in rows if name != "marker"}
