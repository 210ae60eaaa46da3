"""A TCP connection between two hosts of the lab, with access to both ends."""

import socket


def connect(client, server, address, port, family=socket.AF_INET):
    """A TCP connection from one host to another, returned as the sockets of both ends."""
    listener = server.listener(port, family)
    with listener:
        ours = client.open_socket(family, socket.SOCK_STREAM)
        ours.connect((address, port))
        theirs, _ = listener.accept()
    theirs.settimeout(5)
    return ours, theirs


def exchange(one, other):
    """Send bytes in both directions, and check that they arrive."""
    for sender, receiver in [(one, other), (other, one)]:
        sender.sendall(b"hello " * 1000)
        left = 6000
        while left:
            data = receiver.recv(left)
            assert data, "the connection was closed"
            left -= len(data)
