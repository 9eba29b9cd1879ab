"""Consumers and watchers, blocking and asynchronous, and the rules that they share."""
