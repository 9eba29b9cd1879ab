"""Watching the process: memory, disk, backpressure, debug output."""
