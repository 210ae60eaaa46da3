"""Two translators under the same packets: Linux netfilter, live, and Sluice, by `sluice replay`.

A *world* is a set of rules (`world`), a *scenario* some flows and the steps that packets of them make (`scenario`). Each
system plays it (`netfilter`, `sluice`), and `comparison` says where they part; what may differ is named in
`differences`, and nothing else is forgiven.
"""
