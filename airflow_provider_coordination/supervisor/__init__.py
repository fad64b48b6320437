"""The supervisor: one spec runs a source for years. What it decides, and what it remembers in the store."""
