"""Compares live Linux netfilter and Sluice (through `sluice replay`) with the same packets.

A *world* is a set of rules (`world`). A *scenario* is a set of flows and of steps, each of which sends a packet
(`scenario`). Each system processes the scenario (`netfilter`, `sluice`), and `comparison` finds the differences.
`differences` lists the accepted differences; all other differences are failures.
"""
