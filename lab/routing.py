"""Routing daemons: FRR, which sends its routes by FPM or installs them in the kernel, and BIRD."""

import os
import shutil

from lab import waiting

PROGRAMS = "/usr/lib/frr"

ZEBRA = """\
log stdout
fpm address {address}
"""


class Frr:
    """FRR on a host: zebra, staticd and the named daemons, each with its configuration. Without an FPM address,
    routes are installed in the kernel. Changes of static routes by `configure` are preserved across a restart."""

    def __init__(self, host, address=None, **daemons):
        self.host = host
        self.address = address
        self.folder = os.path.join(host.folder, f"frr-{host.name}")
        os.makedirs(self.folder)
        self._write("zebra.conf", ZEBRA.format(address=address) if address else "log stdout\n")
        for name, text in {"staticd": "", **daemons}.items():
            self._write(f"{name}.conf", text)
        shutil.chown(self.folder, "frr", "frr")
        self.routes = []
        self.names = ["zebra", "staticd", *daemons]
        self.processes = {}

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        shutil.chown(path, "frr", "frr")

    def _spawn(self, program, *arguments):
        self.processes[program] = self.host.spawn(
            f"{PROGRAMS}/{program}", "-f", f"{self.folder}/{program}.conf", "-i", f"{self.folder}/{program}.pid",
            "-z", f"{self.folder}/zserv.api", "--vty_socket", self.folder, "-A", "127.0.0.1", *arguments,
        )

    def start(self):
        """Start all daemons, and return when they accept commands."""
        self._spawn("zebra", *(["-M", "dplane_fpm_nl"] if self.address else []))
        waiting.until(lambda: os.path.exists(f"{self.folder}/zserv.api"), "zebra to serve")
        for program in self.names[1:]:
            self._spawn(program)
        for program in self.names:
            waiting.until(lambda program=program: "FRRouting" in self.ask(program, "show version"), program)

    def ask(self, program, *commands):
        """Run a command of a daemon and return its answer."""
        words = [word for command in commands for word in ["-c", command]]
        return self.host.run("vtysh", "--vty_socket", self.folder, "-d", program, *words, check=False)

    def configure(self, *commands):
        """Change static routes with configuration lines such as `ip route …` and `no ip route …`."""
        for command in commands:
            if command.startswith("no "):
                self.routes.remove(command.removeprefix("no "))
            else:
                self.routes.append(command)
        self._write("staticd.conf", "\n".join([*self.routes, ""]))
        self.ask("staticd", "configure terminal", *commands)

    def kill(self):
        """Kill all daemons, without any message to peers."""
        for process in self.processes.values():
            process.popen.kill()
        for process in self.processes.values():
            process.popen.wait()
        os.unlink(f"{self.folder}/zserv.api")


class Bird:
    """BIRD on a host, with its configuration."""

    def __init__(self, host, configuration):
        self.host = host
        self.path = os.path.join(host.folder, f"{host.name}-bird.conf")
        self.control = os.path.join(host.folder, f"{host.name}-bird.ctl")
        with open(self.path, "w", encoding="ascii") as file:
            file.write(configuration)
        self.process = None

    def start(self, *flags):
        """Start BIRD."""
        self.process = self.host.spawn("bird", "-f", *flags, "-c", self.path, "-s", self.control, label="bird")

    def ask(self, *words):
        """Run a command and return its answer."""
        return self.host.run("birdc", "-s", self.control, *words, check=False)
