"""The package's own kinds of stores, one module each. `STORE_KINDS` finds them by name."""
