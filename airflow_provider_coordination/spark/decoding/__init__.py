"""Decoding payloads in Spark's Python workers: from the bytes of a record to rows with columns.

One module a step: what is around payloads (compression, envelopes), one for each format, and the registries of schemas.
"""
