"""Heads of requests: the strict reader, the quick ones, the grammar of header lines."""
