"""The demonstration that `make demo` runs, and the local server that it shares with the tests.

It is not part of the wheel.
"""
