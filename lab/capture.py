"""Captures of every link during a test. The captures are kept if the test fails."""

import os
import shutil
import signal

PLACES = [(name, "eth0") for name in ["alice", "anna", "bob", "bella", "carol", "upstream", "server", "operator", "homes-dhcp"]]


class Captures:
    """One tcpdump per host. The gateway's own interfaces can't be captured, because AF_XDP receives frames before
    tcpdump."""

    def __init__(self, topology, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        hosts = {host.name: host for host in topology.hosts}
        # The first bytes of a frame are sufficient for diagnosis; whole frames of a bulk transfer would fill the disk.
        self.processes = [
            hosts[name].spawn("tcpdump", "-i", interface, "-n", "-U", "-s", "256", "-B", "4096", "-Z", "root",
                              "-w", os.path.join(folder, f"{name}-{interface}.pcap"), label="tcpdump")
            for name, interface in PLACES
            if name in hosts
        ]
        for process in self.processes:
            process.wait_for_line("listening on")

    def finish(self, keep, logs=()):
        """Stop the captures, and either keep the files together with the given logs, or delete them."""
        for process in self.processes:
            if process.running:
                process.signal(signal.SIGINT)
        for process in self.processes:
            process.wait()
        if not keep:
            shutil.rmtree(self.folder)
            return
        for log in logs:
            if os.path.exists(log):
                shutil.copy(log, self.folder)
