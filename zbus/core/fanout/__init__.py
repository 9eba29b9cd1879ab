"""Subscribers that receive every message of a topic, read once for all of them."""
