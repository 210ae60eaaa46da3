"""Routing daemons: FRR in a host of its own, which tells its routes by FPM."""

import os
import shutil

from lab import waiting

PROGRAMS = "/usr/lib/frr"

ZEBRA = """\
log stdout
fpm address {address}
"""


class Frr:
    """zebra and staticd on a host. What they are told with `configure` they know again when they are started anew."""

    def __init__(self, host, address):
        self.host = host
        self.folder = os.path.join(host.folder, "frr")
        os.makedirs(self.folder)
        self._write("zebra.conf", ZEBRA.format(address=address))
        self._write("staticd.conf", "")
        shutil.chown(self.folder, "frr", "frr")
        self.routes = []
        self.zebra = self.staticd = None

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        shutil.chown(path, "frr", "frr")

    def _spawn(self, program, *arguments):
        return self.host.spawn(
            f"{PROGRAMS}/{program}", "-f", f"{self.folder}/{program}.conf", "-i", f"{self.folder}/{program}.pid",
            "-z", f"{self.folder}/zserv.api", "--vty_socket", self.folder, "-A", "127.0.0.1", *arguments,
        )

    def start(self):
        """Start both; returns when they take commands."""
        self.zebra = self._spawn("zebra", "-M", "dplane_fpm_nl")
        waiting.until(lambda: os.path.exists(f"{self.folder}/zserv.api"), "zebra to serve")
        self.staticd = self._spawn("staticd")
        for program in ["zebra", "staticd"]:
            waiting.until(lambda program=program: "FRRouting" in self._ask(program, "show version"), program)

    def _ask(self, program, *commands):
        words = [word for command in commands for word in ["-c", command]]
        return self.host.run("vtysh", "--vty_socket", self.folder, "-d", program, *words, check=False)

    def configure(self, *commands):
        """Change static routes, as in a configuration: `ip route …`, `no ip route …`."""
        for command in commands:
            if command.startswith("no "):
                self.routes.remove(command.removeprefix("no "))
            else:
                self.routes.append(command)
        self._write("staticd.conf", "\n".join([*self.routes, ""]))
        self._ask("staticd", "configure terminal", *commands)

    def kill(self):
        """End both at once, without a word to anybody."""
        for process in [self.zebra, self.staticd]:
            process.popen.kill()
            process.popen.wait()
        os.unlink(f"{self.folder}/zserv.api")
