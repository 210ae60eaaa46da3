"""Tests that every kind of card, with both binding methods, carries the traffic of a gateway."""

import hashlib
import json
import os

import pytest

from lab import waiting
from lab.pings import answered, unanswered
from lab.vm.lanes import SERVER, SERVER6, Files, document, request, running
from lab.wire import ARP, ICMP, IP, UDP, Dot1Q, Ether, Raw, Wire

VLANS = {"one-tag": "100", "two-tags": "200.300"}


def virtual_mac(lane):
    """The MAC address that is configured for a lane's inside interface in place of the card's MAC address."""
    return "02:53" + lane.inside.mac[5:]


@pytest.fixture(scope="module")
def gateway(guest):
    """One gateway with one worker for cards of all kinds. The clients ping as soon as the gateway answers."""
    lanes = list(guest.lanes.values())
    made = document(lanes)
    for lane in lanes:
        made["interfaces"][lane.inside.name]["mac"] = virtual_mac(lane)
        for number, (name, tags) in enumerate(VLANS.items(), 1):
            made["interfaces"][f"{lane.name}-{name}"] = {
                "parent": lane.inside.name, "vlan": tags, "router": lane.name, "addresses": [f"10.0.{number}.1/24"],
            }
        made["routers"][lane.name]["nat"]["source"][0]["from"] = "10.0.0.0/16"
    with running(guest, made, lanes) as gateway:
        pings = [lane.client.spawn("ping", "-n", "-c", "10", "-i", "0.1", "-w", "60", SERVER) for lane in lanes]
        for ping in pings:
            ping.wait(90)
        gateway.first_pings = {lane.name: ping.output for lane, ping in zip(lanes, pings)}
        yield gateway


def test_pings_from_the_first_moment_on_are_answered(gateway, lane):
    assert [] == unanswered(gateway.first_pings[lane.name], 10)


def test_pings_over_ipv6_are_answered(gateway, lane):
    assert answered(lane.ping(address=SERVER6), 5)


@pytest.mark.parametrize("address", [SERVER, SERVER6], ids=["ipv4", "ipv6"])
def test_files_in_both_directions_have_the_same_hash(gateway, lane, address):
    files = Files(lane.server)
    content = os.urandom(4 << 20)
    try:
        assert files.digest == hashlib.sha256(request(lane.client, address)).hexdigest()
        assert hashlib.sha256(content).hexdigest() == request(lane.client, address, "PUT", content).decode()
    finally:
        files.stop()


def test_iperf3_moves_data_in_both_directions_at_once(gateway, lane):
    # If a queue is full, QEMU's virtio with hashing stops the queue permanently. Therefore this kind gets no load.
    bitrate = ["--bitrate", "2M"] if lane.kind.hashes else []
    serving = lane.server.spawn("iperf3", "--server", "--one-off")
    lane.server.wait_listening(5201)
    output = lane.client.run("iperf3", "--client", SERVER, "--json", "--time", "1", "--bidir", *bitrate)
    end = json.loads(output)["end"]
    assert 0 == serving.wait()
    for received in (end["sum_received"], end["sum_received_bidir_reverse"]):
        assert received["bytes"] > 200_000


@pytest.mark.parametrize("name", VLANS)
def test_tagged_frames_are_routed_and_answered_with_the_same_tags(gateway, lane, name):
    number = 1 + list(VLANS).index(name)
    tags = [int(tag) for tag in VLANS[name].split(".")]
    own, client = f"10.0.{number}.1", f"10.0.{number}.2"

    def tagged(mac):
        frame = Ether(src=wire.mac, dst=mac, type=0x8100 if len(tags) == 1 else 0x88A8)
        for tag in tags:
            frame = frame / Dot1Q(vlan=tag)
        return frame

    def has_tags(frame):
        layers = [layer.vlan for layer in frame.iterpayloads() if isinstance(layer, Dot1Q)]
        return tags == layers and frame.type == tagged(frame.dst).type

    with Wire(lane.client, tags=True) as wire:
        ask = ARP(hwsrc=wire.mac, psrc=client, pdst=own)
        wire.send(tagged("ff:ff:ff:ff:ff:ff") / ask)
        answer = wire.expect(lambda frame: has_tags(frame) and ARP in frame and frame[ARP].op == 2)
        assert (own, virtual_mac(lane)) == (answer[ARP].psrc, answer[ARP].hwsrc)
        data = bytes(range(256)) * 5
        wire.send(tagged(answer.src) / IP(src=client, dst=SERVER) / ICMP(id=number) / Raw(data))
        echo = wire.expect(lambda frame: has_tags(frame) and ICMP in frame and frame[ICMP].type == 0)
        assert (SERVER, client, data) == (echo[IP].src, echo[IP].dst, bytes(echo[Raw]))


def test_card_takes_the_address_that_it_is_given(gateway, lane):
    assert virtual_mac(lane) == lane.client.mac_of("10.0.0.1")
    macs = {row["name"]: row["mac"] for row in gateway.show("interfaces")["interfaces"]}
    assert (virtual_mac(lane), lane.outside.mac) == (macs[lane.inside.name], macs[lane.outside.name])


def test_frames_for_another_station_are_left_by_the_card(gateway, lane):
    before = gateway.drops().get("not-our-mac", 0)
    with Wire(lane.client) as wire:
        # The card has a virtual MAC address, so its hardware address is treated as the address of another station.
        for mac in ["02:00:00:00:00:77", lane.inside.mac] * 10:
            wire.send(Ether(src=wire.mac, dst=mac) / IP(src="10.0.0.2", dst=SERVER) / UDP(dport=9))
    # The answer to this ping shows that the earlier packets were processed.
    lane.ping(count=1)
    assert before == gateway.drops().get("not-our-mac", 0)


def test_link_that_goes_takes_its_routes_along_and_brings_them_back(guest, gateway, lane):
    def has_route():
        return "198.51.100.0/25" in [row["to"] for row in gateway.show("routes", "--router", lane.name)["routes"]]

    assert has_route()
    guest.set_link(lane.outside, False)
    try:
        waiting.until(lambda: gateway.links()[lane.outside.name] == "down", "the link to be down")
        waiting.until(lambda: not has_route(), "its route to go")
        lane.ping_unanswered(2)
    finally:
        guest.set_link(lane.outside, True)
    waiting.until(lambda: gateway.links()[lane.outside.name] == "up", "the link to be up")
    waiting.until(has_route, "its route to come back")
    assert answered(lane.ping(), 5)


def test_every_packet_is_accounted_for(gateway):
    rows = gateway.show("interfaces")["interfaces"]
    came = sum(row["received"] + row["originated"] + row["unparked"] for row in rows)
    assert came == sum(row["sent"] + row["dropped"] + row["to-host"] + row["parked"] for row in rows)
    assert all(row["received"] > 0 and row["sent"] > 0 for row in rows if row["device"].startswith("0000:"))
