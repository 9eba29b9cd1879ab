"""Structures for what becomes due: timers, lease deadlines, delayed messages."""
