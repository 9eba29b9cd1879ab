"""One turn of the broker: changes that are written, synced and answered together."""
