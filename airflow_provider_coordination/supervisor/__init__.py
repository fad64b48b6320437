"""The supervisor: keeps the Spark jobs of a source running according to its spec."""
