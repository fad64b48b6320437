"""The core: partitions, leases, the coordinator, acknowledgments, balancing. Imports the standard library alone."""
