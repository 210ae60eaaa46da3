"""The lab's virtual machines: guests with emulated PCI cards, made of the host's own files."""
