"""Compares the results of two systems for a scenario. Each system chooses its own outside addresses and ports, so
the comparison only requires a constant one-to-one mapping between the choices of the two systems."""

import struct

from lab.oracle import packet
from lab.oracle.differences import Forgiven
from lab.oracle.scenario import INVALID, is_prohibition, is_refusal


class Mismatch(AssertionError):
    """The systems differ at a step."""


class Comparison:
    """Compares the steps of one scenario in order. `count` counts accepted differences by name."""

    def __init__(self, world, scenario, count):
        self.world, self.scenario = world, scenario
        self.forgiven = Forgiven(world, scenario, count)
        # Maps outside addresses and ports of Linux to outside addresses and ports of Sluice, and back.
        self.mapping = {}, {}
        self.step = None

    def run(self, linux, sluice):
        """Raises `Mismatch` at the first step with a difference."""
        for number, step in enumerate(self.scenario.steps):
            self.step = step
            kept = self.forgiven.told_of_later(sluice[number])
            try:
                self._sums(sluice[number] or [])
                self._step(step, linux[number], kept)
            except Mismatch as error:
                raise Mismatch(
                    f"step {number}: {error}\n  {step}\n  Linux:  {told(linux[number])}\n  Sluice: {told(sluice[number])}"
                ) from None
            self.forgiven.note(step, kept)

    def _sums(self, sluice):
        for _, datagram in sluice:
            if wrong := packet.faults(datagram):
                raise Mismatch(f"Sluice sent a wrong {', '.join(wrong)}")

    def _step(self, step, linux, sluice):
        if sluice and (wrong := self.forgiven.wrong(step, sluice)):
            raise Mismatch(f"Sluice sent {wrong}")
        if linux is None or sluice is None:
            if linux is not sluice and not self.forgiven.unmade(step, linux, sluice):
                raise Mismatch("only one system could be sent the packet")
            return
        if self.forgiven.verdict(step, linux, sluice):
            for (interface, ours), (_, theirs) in zip(linux, sluice):
                if interface == INVALID:
                    self._untranslated(step, ours, theirs)
            return
        linux = [output for output in linux if output[0] != INVALID]
        if len(linux) != len(sluice):
            raise Mismatch(f"{len(linux)} packets of Linux, {len(sluice)} of Sluice")
        for (interface, ours), (other, theirs) in zip(linux, sluice):
            if interface != other:
                raise Mismatch(f"out by {interface} of Linux, by {other} of Sluice")
            self._datagram(ours, theirs)

    def _untranslated(self, step, linux, sluice):
        """Compares a packet that Linux has refused without translation with the packet that Sluice has forwarded."""
        if sluice.is_error or is_refusal(step, sluice):
            return
        linux = self.forgiven.identification(linux, sluice).but(ttl=step.form.get("ttl", 64) - 1)
        self._same(linux, sluice, ("protocol", *linux.KEPT))
        if _body(linux) != _body(sluice):
            raise Mismatch(f"content {_body(linux)[:64].hex()} became {_body(sluice)[:64].hex()}")

    def _datagram(self, linux, sluice):
        own = self.forgiven.own(linux, sluice)
        if own:
            linux = self.forgiven.source_of_own(linux, sluice)
            self._same(linux, sluice, ("protocol", "options"))
        else:
            linux = self.forgiven.identification(linux, sluice)
            self._same(linux, sluice, ("protocol", *linux.KEPT))
        self._ends(linux, sluice, "")
        if linux.is_error and sluice.is_error:
            self._error(linux, sluice, own)
        elif _body(linux) != _body(sluice):
            raise Mismatch(f"content {_body(linux)[:64].hex()} of Linux, {_body(sluice)[:64].hex()} of Sluice")

    def _same(self, linux, sluice, fields, what=""):
        for field in fields:
            mine, yours = getattr(linux, field), getattr(sluice, field)
            if mine != yours:
                raise Mismatch(f"{what}{field} {mine} of Linux, {yours} of Sluice")

    def _ends(self, linux, sluice, what):
        """Checks that source and destination with ports are equal, or that they are corresponding outside addresses
        and ports. Linux treats queries of different types as different flows."""
        kind = linux.protocol, linux.is_query and max(linux.payload[0], packet.QUERIES.get(linux.payload[0], 0))
        (source, target), (other_source, other_target) = _ends_of(linux, self.world), _ends_of(sluice, self.world)
        for mine, yours, peer in ((source, other_source, target), (target, other_target, source)):
            pool = self.world.pool_of(mine[0])
            if pool is None and mine == yours:
                continue
            if pool is None or pool != self.world.pool_of(yours[0]):
                raise Mismatch(f"{what}addresses and ports {mine} of Linux, {yours} of Sluice")
            if mine[1] is None:
                continue
            for a, b, known in ((mine, yours, self.mapping[0]), (yours, mine, self.mapping[1])):
                before = known.setdefault((*kind, a, peer), b)
                if before != b:
                    if not self.forgiven.reopened(self.step):
                        raise Mismatch(f"{what}mapping of {a} was {before} before, and is {b} now")
                    known[*kind, a, peer] = b

    def _error(self, linux, sluice, own):
        mine, yours = linux.payload, sluice.payload
        if mine[:2] != yours[:2] or mine[4:8] != yours[4:8]:
            raise Mismatch(f"error {mine[:8].hex()} of Linux, {yours[:8].hex()} of Sluice")
        prohibits, whole = is_prohibition(sluice), (linux, sluice)
        linux, sluice = packet.read(mine[8:], quoted=True), packet.read(yours[8:], quoted=True)
        for field, inner in (("source", "destination"), ("destination", "source")):
            as_quoted = [getattr(outer, field) == getattr(quote, inner) for outer, quote in zip(whole, (linux, sluice))]
            if as_quoted[0] != as_quoted[1]:
                raise Mismatch(f"only one error has the {field} that is the {inner} of its quote")
        if own:
            linux = self.forgiven.quote_of_own(linux, sluice)
            linux = self.forgiven.quote_of_refused(linux, sluice, prohibits)
        linux = self.forgiven.identification(linux, sluice)
        self._same(linux, sluice, ("protocol", "length", *linux.KEPT), "quoted ")
        self._ends(linux, sluice, "quoted ")
        mine, yours = _body(linux), _body(sluice)
        if own:
            # A gateway may quote any number of bytes, at least 8, of a packet that it could not forward.
            room = max(8, min(len(mine), len(yours)))
            mine, yours = mine[:room], yours[:room]
        if mine != yours:
            raise Mismatch(f"quoted content {mine[:64].hex()} of Linux, {yours[:64].hex()} of Sluice")


def _ends_of(datagram, world):
    """Source and destination with ports. The identifier of an ICMP query belongs to the translated end."""
    ports = datagram.ports or (None, None)
    ends = (datagram.source, ports[0]), (datagram.destination, ports[1])
    if datagram.protocol == packet.ICMP and any(world.pool_of(address) for address, _ in ends):
        ends = tuple((address, port if world.pool_of(address) else None) for address, port in ends)
    return ends


def _body(datagram):
    """The payload without the parts that translation changes: ports are zero, and the checksum is computed without
    addresses and ports."""
    body = bytearray(datagram.payload)
    if datagram.offset:
        return bytes(body)
    if datagram.protocol in packet.PORTS and len(body) >= 8:
        at = 16 if datagram.protocol == packet.TCP else 6
        ends = packet.words(packet.number(datagram.source) + packet.number(datagram.destination) + bytes(body[:4]))
        none = datagram.protocol == packet.UDP and body[6:8] == b"\0\0"
        body[:4] = bytes(4)
    elif datagram.is_query and len(body) >= 6:
        at, none = 2, False
        ends = packet.words(bytes(body[4:6]))
        body[4:6] = bytes(2)
    else:
        return bytes(body)
    if len(body) >= at + 2 and not none:
        value = struct.unpack_from("!H", body, at)[0]
        # One's complement has two representations of zero.
        struct.pack_into("!H", body, at, (0xFFFF - value + 0xFFFF - packet.fold(ends)) % 0xFFFF)
    return bytes(body)


def told(outputs):
    """The outputs of a step as one line of text."""
    if outputs is None:
        return "could not be sent"
    return "; ".join(f"{interface}: {datagram}" for interface, datagram in outputs) or "nothing"
