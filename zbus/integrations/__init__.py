"""Frameworks of Python over zbus, a file each (docs/howto/python-frameworks.md)."""
