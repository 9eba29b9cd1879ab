"""Logs copied from one place to another, batch by batch: `zbus copy`."""
