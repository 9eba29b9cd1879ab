"""Partitions in the lanes of an engine: written, read again, and forgotten by segments."""
