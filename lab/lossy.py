"""A lossy link forwards frames between two interfaces, and drops some frames in each direction. A seed determines
the dropped frames."""

import os
import random
import select
import socket
import subprocess
import sys
import time

# Packet sockets also receive the outgoing frames of this host, which have this type.
PACKET_OUTGOING = 4
ETH_P_ALL = 3
LARGEST = 65_536
AT_ONCE = 64


def spawn(host, interfaces, percent, seed=1, delay=0.0):
    """Connect two interfaces of a host. A percentage of the frames is lost in each direction, and the other frames
    are delayed by `delay` seconds."""
    process = host.spawn(sys.executable, "-B", os.path.abspath(__file__), *interfaces, percent, seed, delay, label="lossy")
    process.wait_for_line("joined")
    return process


def _open(interface):
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.bind((interface, 0))
    made.setblocking(False)
    return made


def _join(names, percent, seed, delay):
    for name in names:
        # Frames to other hosts are received, too.
        subprocess.run(["ip", "link", "set", name, "promisc", "on"], check=True)
    left, right = (_open(name) for name in names)
    across = {left: (right, random.Random(seed)), right: (left, random.Random(seed + 1))}
    waiting = []
    print("joined", flush=True)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select(list(across), [], [], timeout)
        now = time.monotonic()
        for comes in ready:
            goes, chance = across[comes]
            for _ in range(AT_ONCE):
                try:
                    frame, (_, _, kind, *_) = comes.recvfrom(LARGEST)
                except BlockingIOError:
                    break
                if kind != PACKET_OUTGOING and chance.random() * 100 >= percent:
                    waiting.append((now + delay, goes, frame))
        while waiting and waiting[0][0] <= now:
            _, goes, frame = waiting.pop(0)
            try:
                goes.send(frame)
            except OSError:
                # The frame is lost, because the queue of the interface is full or the interface is down.
                pass


if __name__ == "__main__":
    _join(sys.argv[1:3], float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
