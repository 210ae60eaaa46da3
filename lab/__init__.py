"""The lab: topologies in network namespaces, for the demonstration and the system tests."""
