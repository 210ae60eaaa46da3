"""Compares two translators with the same packets: Linux netfilter, live, and Sluice, through `sluice replay`.

A *world* is a set of rules (`world`). A *scenario* is a set of flows and of steps, each of which sends a packet (`scenario`). Each
system plays it (`netfilter`, `sluice`), and `comparison` finds the differences. `differences` lists the accepted ones; all others
are failures.
"""
