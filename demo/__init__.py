"""The demonstration that `make demo` runs, and the local server that it shares with the tests.

Not shipped in the wheel.
"""
