"""The lab's virtual machines: guests with emulated PCI cards, built from the host's own files."""
