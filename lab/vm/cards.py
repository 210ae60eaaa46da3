"""The kinds of cards that QEMU emulates, their capabilities, and how a card is added to a guest."""

from dataclasses import dataclass, field

# The kernel drivers that give user space access to a card, by binding method.
WAYS = {"vfio": "vfio-pci", "uio": "uio_pci_generic"}


@dataclass(frozen=True)
class Kind:
    """A kind of card."""

    name: str
    device: str
    options: dict = field(default_factory=dict)
    # Number of queue pairs, and whether a configurable hash selects the queue.
    queues: int = 1
    hashes: bool = False
    # The possible binding methods. Behind an IOMMU, virtio must have version 1.
    ways: tuple = ("vfio", "uio")
    # The kernel's own driver, if the kernel of the tests has one for this kind.
    kernel_driver: str = ""

    @property
    def virtio(self):
        return self.device == "virtio-net-pci"


MODERN = {"disable-legacy": "on"}
MULTI = {"mq": "on", "vectors": "6"}

KINDS = {
    kind.name: kind
    for kind in [
        Kind("virtio-legacy", "virtio-net-pci", {"disable-modern": "on", "disable-legacy": "off"}, ways=("uio",), kernel_driver="virtio-pci"),
        Kind("virtio", "virtio-net-pci", MODERN, kernel_driver="virtio-pci"),
        Kind("virtio-packed", "virtio-net-pci", {**MODERN, "packed": "on"}, kernel_driver="virtio-pci"),
        Kind("virtio-mq", "virtio-net-pci", {**MODERN, **MULTI}, queues=2, kernel_driver="virtio-pci"),
        Kind("virtio-rss", "virtio-net-pci", {**MODERN, **MULTI, "rss": "on", "hash": "on"}, queues=2, hashes=True, kernel_driver="virtio-pci"),
        Kind("e1000", "e1000"),
        Kind("e1000e", "e1000e"),
        Kind("vmxnet3", "vmxnet3", kernel_driver="vmxnet3"),
    ]
}


@dataclass(frozen=True)
class Card:
    """A card in a guest, and its tap. `bus` is the PCI bus of the card; the default is the root bus."""

    name: str
    kind: Kind
    mac: str
    bus: str = ""

    @property
    def wire(self):
        """The name of the card's tap, within the length limit of interface names."""
        return "wire-" + self.mac[-5:].replace(":", "")

    def backend(self):
        """QEMU's options for the backend of the card, which uses the tap."""
        queues = {"queues": str(self.kind.queues)} if self.kind.queues > 1 else {}
        return {"type": "tap", "id": self.wire, "ifname": self.wire, "script": "no", "downscript": "no", **queues}

    def device(self, iommu):
        """The device option of QEMU."""
        behind = {"iommu_platform": "on"} if iommu and self.kind.virtio and "disable-modern" not in self.kind.options else {}
        bus = {"bus": self.bus} if self.bus else {}
        # The card has no ROM, because the guest does not boot from the network.
        own = {"driver": self.kind.device, "id": self.name, "netdev": self.wire, "mac": self.mac, "romfile": ""}
        return {**own, **self.kind.options, **behind, **bus}


def pair(kind, number, buses=("", "")):
    """An inside card and an outside card of a kind, as pair number `number` of a guest."""
    kind = KINDS[kind]
    sides = zip(("in", "out"), (1, 2), buses)
    return [Card(f"{kind.name}-{side}", kind, f"52:54:00:00:{number:02x}:{last:02x}", bus) for side, last, bus in sides]
