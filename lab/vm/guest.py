"""A guest is a virtual machine of QEMU under pure emulation, with a shell, and with cards connected to the lab's
hosts."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time

from lab import waiting
from lab.process import Process
from lab.vm.cards import WAYS

# Emulation is slow, and other guests or tests may run concurrently.
BOOT = 180
COMMAND = 120
# A kernel can hang while it boots under emulation. In this case, another guest is started before the test runs.
BOOTS = 3
HANGS = ("soft lockup", "rcu_preempt kthread starved")
# Seconds in which the kernel of a guest prints where it is, when it no longer answers.
TRACE = 20


class Hung(AssertionError):
    """A guest that no longer answers."""


def _option(words):
    """A table in the format of QEMU's command line. The value of the first key comes first, without its key."""
    first, *others = words.items()
    return ",".join([first[1], *(f"{key}={value}" for key, value in others)])


class GuestProcess:
    """A program that runs in a guest in parallel with the test, and its output, like `lab.process.Process`."""

    def __init__(self, guest, command, number):
        self.guest, self.command = guest, command
        self.place = f"/run/lab/process-{number}"
        guest.sh(
            f"mkdir {self.place}; cd {self.place}; "
            f"{{ {shlex.join(command)} >log 2>&1 & echo $! >pid; wait $!; echo $? >status; }} >/dev/null 2>&1 </dev/null &\n"
            "until [ -s pid ]; do usleep 1000; done"
        )

    @property
    def log(self):
        return f"{self.place}/log"

    @property
    def output(self):
        return self.guest.sh(f"cat {self.log}")

    @property
    def number(self):
        """The process identifier in the guest."""
        return int(self.guest.sh(f"cat {self.place}/pid"))

    @property
    def running(self):
        return self.guest.sh(f"[ -s {self.place}/status ] || echo runs") != ""

    def _until(self, condition, what, timeout):
        """Wait until a condition of the guest's shell is true."""
        self.guest.sh(f"end=$(( $(date +%s) + {int(timeout) + 1} )); until {condition} || [ $(date +%s) -ge $end ]; do usleep 50000; done",
                      timeout=timeout + COMMAND)
        if not self.guest.true(condition):
            raise waiting.Timeout(f"waited {timeout:g} s for {what}:\n{self.output}")

    def wait_for_line(self, pattern, timeout=30.0):
        """Wait until a line of the log matches an extended regular expression."""
        seen = f"grep -qE {shlex.quote(pattern)} {self.log}"
        self._until(f"{{ {seen} || [ -s {self.place}/status ]; }}", f"/{pattern}/ in the log of {self.command}", timeout)
        if not self.guest.true(seen):
            raise AssertionError(f"{self.command[0]} ended with {self.wait()}:\n{self.output}")

    def wait(self, timeout=30.0):
        """Wait for its end and return its exit status."""
        self._until(f"[ -s {self.place}/status ]", f"the end of {self.command}", timeout)
        return int(self.guest.sh(f"cat {self.place}/status"))

    def signal(self, number):
        self.guest.sh(f"kill -{int(number)} $(cat {self.place}/pid)")

    def stop(self, timeout=10.0):
        """Terminate the program, kill it if it does not end, and return its exit status."""
        self.guest.sh(f"kill -TERM $(cat {self.place}/pid) 2>/dev/null")
        try:
            return self.wait(timeout)
        except waiting.Timeout:
            self.guest.sh(f"kill -KILL $(cat {self.place}/pid) 2>/dev/null")
            return self.wait(timeout)


class Guest:
    """A virtual machine. The taps of its cards are created by this class, and moved to hosts with `attach`.

    `image` contains kernel and initramfs, and `machine` is the machine type of QEMU. `ports` contains names of PCIe
    slots into which cards can be plugged while the guest runs. `append` is added to the kernel's command line, and
    `extra` to QEMU's command line before the cards.
    """

    # The running guests, and a description of each guest that has hung in this run.
    alive = []
    hangs = []

    def __init__(self, name, folder, image, cards=(), *, iommu=False, machine="q35", ports=(), memory=768, cpus=2, cpu="Nehalem", append="",
                 extra=()):
        self.name, self.cards, self.iommu = name, {card.name: card for card in cards}, iommu
        self.folder = os.path.join(folder, name)
        # Remove the console of an earlier guest with this name, which could be mistaken for the console of this guest.
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.processes = []
        self.lock = threading.RLock()
        self.number, self.received, self.hung = 0, b"", False
        self.shell = self.monitor = None
        self.events = []
        for card in cards:
            queues = ["multi_queue"] if card.kind.queues > 1 else []
            subprocess.run(["ip", "tuntap", "add", card.wire, "mode", "tap", *queues], check=True)
            subprocess.run(["ip", "link", "set", card.wire, "up"], check=True)
        kernel, initramfs = image
        words = ["console=ttyS0", "quiet", "panic=-1", "unknown_nmi_panic", "panic_print=0x40", *(["intel_iommu=on", "iommu=pt"] if iommu else []), append]
        command = [
            "qemu-system-x86_64", "-name", name, "-nodefaults", "-display", "none", "-no-reboot",
            # KVM is not used: if KVM starts and fails later, QEMU does not fall back to emulation.
            "-accel", "tcg,thread=multi", "-cpu", cpu, "-smp", str(cpus), "-m", str(memory),
            "-M", machine + (",kernel-irqchip=split" if iommu else ""),
            "-kernel", kernel, "-initrd", initramfs, "-append", " ".join(words).strip(),
            "-serial", f"file:{self.console_path}", "-serial", f"unix:{self.folder}/shell,server=on,wait=off",
            "-qmp", f"unix:{self.folder}/qmp,server=on,wait=off",
        ]
        if iommu:
            # The IOMMU must precede the cards. DPDK needs more address bits than the default.
            command += ["-device", "intel-iommu,intremap=on,caching-mode=on,aw-bits=48"]
        for place, port in enumerate(ports, 1):
            command += ["-device", f"pcie-root-port,id={port},chassis={place},slot={place}"]
        command += extra
        for card in cards:
            command += ["-netdev", _option(card.backend()), "-device", _option(card.device(iommu))]
        self.command = command
        self._begin()
        Guest.alive.append(self)

    def _begin(self):
        self.process = Process(self.command, os.path.join(self.folder, "qemu.log"))

    @property
    def console_path(self):
        return os.path.join(self.folder, "console")

    @property
    def console(self):
        """The output of the guest's kernel so far."""
        with open(self.console_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def _gone(self, why):
        return AssertionError(self._about(why))

    def _about(self, why):
        return f"guest {self.name}: {why}\n{self.process.output}{self.console[-6000:]}"

    def _hang(self, command, timeout):
        """The guest is lost. Returns the error, with what its processors execute."""
        self.hung = True
        Guest.hangs.append(f"guest {self.name} during {command}")
        try:
            registers = self.qmp("human-monitor-command", **{"command-line": "info registers -a"})
            # The kernel answers an interrupt of unknown origin by printing its stack, and ends.
            self.qmp("inject-nmi")
            waiting.until(lambda: not self.process.running, "the kernel to end", TRACE)
        except (AssertionError, OSError, waiting.Timeout) as error:
            registers = f"it does not end after an NMI either: {error}"
        places = "\n".join(line for line in registers.splitlines() if "RIP" in line or "CPU#" in line)
        return Hung(self._about(f"{command} does not end within {timeout:g} s\n{places or registers}"))

    def _connect(self, name):
        made = socket.socket(socket.AF_UNIX)
        made.connect(os.path.join(self.folder, name))
        return made

    def wait(self):
        """Wait until the guest's shell answers."""
        for left in reversed(range(BOOTS)):
            if self._boots(last=left == 0):
                break
            self.process.popen.kill()
            self.process.wait()
            os.rename(self.console_path, f"{self.console_path}-hung-{left}")
            self._begin()
        self.shell = self._connect("shell")
        self.sh("true")
        return self

    def _boots(self, last):
        """Wait until the guest's kernel has booted. Returns false if it hangs; in the last attempt, a hang is an error."""

        def ended():
            if not self.process.running:
                raise self._gone(f"QEMU ended with {self.process.popen.returncode}")
            # The console file of a new guest may not exist yet.
            console = self.console if os.path.exists(self.console_path) else ""
            return "init: up" in console or not last and any(hang in console for hang in HANGS)

        try:
            waiting.until(ended, f"guest {self.name} to be up", BOOT)
        except waiting.Timeout as error:
            raise self._gone(error) from None
        return "init: up" in self.console

    def sh(self, command, check=False, timeout=COMMAND):
        """Run a command of the guest's shell to its end, and return its output."""
        output, status = self.call(command, timeout)
        if check and status != 0:
            raise AssertionError(f"{self.name}: {command} ended with {status}:\n{output}")
        return output

    def true(self, condition):
        """Whether a command of the guest's shell succeeds."""
        return self.call(condition)[1] == 0

    def call(self, command, timeout=COMMAND):
        """Run a command of the guest's shell to its end, and return its output and its exit status."""
        with self.lock:
            if self.hung:
                raise Hung(f"guest {self.name} does not answer any more")
            self.number += 1
            # The command runs in a subshell, so that a syntax error does not end the shell that reads commands.
            line = f"(eval {shlex.quote(command)}) </dev/null; printf '\\n@@%s@@ %s\\n' {self.number} $?\n"
            self.shell.sendall(line.encode())
            end = re.compile(rb"\r?\n@@%d@@ (\d+)\r?\n" % self.number)
            deadline = time.monotonic() + timeout
            while (found := end.search(self.received)) is None:
                self.shell.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    data = self.shell.recv(1 << 16)
                except TimeoutError:
                    raise self._hang(command, timeout) from None
                if not data:
                    raise self._gone(f"it ended during {command}")
                self.received += data
            # Late output of an earlier command precedes the output of this command.
            output = re.split(rb"\n@@\d+@@ \d+\r?\n", self.received[: found.start()])[-1]
            self.received = self.received[found.end():]
            return output.decode(errors="replace").replace("\r", "").removesuffix("\n"), int(found.group(1))

    def run(self, *command, check=True, timeout=COMMAND):
        """Run a program to its end and return its output, as `Host.run` does."""
        return self.sh(shlex.join(str(word) for word in command), check, timeout)

    def spawn(self, *command, label=None, names=False):
        """Start a program that runs in parallel with the test, as `Host.spawn` does."""
        del label, names
        process = GuestProcess(self, [str(word) for word in command], len(self.processes))
        self.processes.append(process)
        return process

    files = "/run/lab"

    def put(self, path, text):
        """Write a file."""
        self.sh(f"printf %s {shlex.quote(text)} >{path}", check=True)

    def qmp(self, execute, **arguments):
        """Send a command to QEMU, and return its answer."""
        with self.lock:
            if self.monitor is None:
                connection = self._connect("qmp")
                connection.settimeout(COMMAND)
                self.monitor = connection.makefile("rw", encoding="utf-8")
                self.monitor.readline()
                self.qmp("qmp_capabilities")
            self.monitor.write(json.dumps({"execute": execute, "arguments": arguments}) + "\n")
            self.monitor.flush()
            while "event" in (answer := json.loads(self.monitor.readline())):
                self.events.append(answer)
            if "error" in answer:
                raise AssertionError(f"{self.name}: {execute} {arguments}: {answer['error']['desc']}")
            return answer["return"]

    def address(self, card):
        """The PCI address of a plugged-in card."""

        def devices(bus):
            for device in bus["devices"]:
                yield device
                yield from devices(device.get("pci_bridge", {"devices": []}))

        for bus in self.qmp("query-pci"):
            for device in devices(bus):
                if device["qdev_id"] == card.name:
                    return f"0000:{device['bus']:02x}:{device['slot']:02x}.{device['function']:x}"
        raise LookupError(f"{card.name} is not plugged in")

    def attach(self, card, host, interface="eth0", mtu=1500):
        """Connect a card to a host, as one of its interfaces."""
        subprocess.run(["ip", "link", "set", card.wire, "netns", host.name, "name", interface, "mtu", str(mtu)], check=True)
        host.run("ip", "link", "set", interface, "up")

    def bind(self, way, *cards):
        """Unbind cards from their drivers and bind them to the driver of a binding method."""
        self.sh("modprobe vfio_iommu_type1" if way == "vfio" else "true", check=True)
        self.give(WAYS[way], *cards)
        for card in cards:
            bound = self.driver(card)
            assert WAYS[way] == bound, f"{card.name} is bound to {bound or 'nothing'}: {self.sh('dmesg | tail -n 5')}"

    def give(self, driver, *cards):
        """Unbind cards from their drivers and bind them to a kernel driver, or to none if no name is given."""
        addresses = " ".join(self.address(card) for card in cards)
        self.sh(f"modprobe {driver}" if driver else "true", check=True)
        self.sh(f"for address in {addresses}; do cd /sys/bus/pci/devices/$address; echo {driver} >driver_override; "
                "[ ! -e driver ] || echo $address >driver/unbind; "
                + ("echo $address >/sys/bus/pci/drivers_probe; " if driver else "") + "done")

    def driver(self, card):
        """The kernel driver of a card; empty if the card has no driver."""
        return self.sh(f"basename $(readlink /sys/bus/pci/devices/{self.address(card)}/driver) 2>/dev/null")

    def set_link(self, card, up):
        """Disconnect the cable of a card, or connect it again."""
        self.qmp("set_link", name=card.name, up=up)

    def unplug(self, card):
        """Send the request to remove a card to the guest's kernel."""
        self.qmp("device_del", id=card.name)

    def wait_unplugged(self, card, timeout=30):
        """Wait until a card is removed."""

        def gone():
            try:
                return not self.address(card)
            except LookupError:
                return True

        waiting.until(gone, f"{card.name} to be out", timeout)

    def plug(self, card):
        """Plug in a new card, or a card that was removed before."""
        if card.name not in self.cards:
            raise LookupError(f"{card.name} has no wire: name it among the guest's cards")
        self.qmp("device_add", **card.device(self.iommu))
        waiting.until(lambda: self.true(f"[ -e /sys/bus/pci/devices/{self.address(card)} ]"), f"the kernel to see {card.name}", 30)

    def hugepages(self, count):
        """Reserve this number of hugepages of the default size."""
        self.sh(f"echo {count} >/proc/sys/vm/nr_hugepages", check=True)
        found = int(self.sh("cat /proc/sys/vm/nr_hugepages"))
        assert count == found, f"{found} of {count} hugepages could be reserved"

    def complaints(self):
        """Kernel messages about accesses that the IOMMU has blocked."""
        return self.sh("dmesg | grep -E 'DMAR.*(fault|DMA Write)'").splitlines()

    def keep(self, folder):
        """Keep diagnostic files: the console, the output of the programs, and the end of the kernel's log."""
        os.makedirs(folder, exist_ok=True)
        for path in (self.console_path, self.process.log):
            shutil.copy(path, os.path.join(folder, f"{self.name}-{os.path.basename(path)}"))
        if self.shell is None or self.hung:
            return
        logs = {f"program-{number}": process.output for number, process in enumerate(self.processes[-2:], len(self.processes[:-2]))}
        for name, text in {**logs, "dmesg": self.sh("dmesg | tail -n 200")}.items():
            with open(os.path.join(folder, f"{self.name}-{name}"), "w", encoding="utf-8") as file:
                file.write(text)

    def stop(self):
        """Kill the guest."""
        if self not in Guest.alive:
            return
        Guest.alive.remove(self)
        self.process.popen.kill()
        self.process.wait()
        for connection in (self.shell, self.monitor):
            if connection:
                connection.close()
        # Delete the taps that were not moved to a host.
        for card in self.cards.values():
            subprocess.run(["ip", "link", "delete", card.wire], stderr=subprocess.DEVNULL, check=False)
