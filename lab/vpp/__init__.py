"""Measurement of VPP's NAT44-ED with its packet generator."""
