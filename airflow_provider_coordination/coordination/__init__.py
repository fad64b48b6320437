"""The core: partitions, leases, the coordinator, acknowledgments, balancing. Imports only the standard library."""
