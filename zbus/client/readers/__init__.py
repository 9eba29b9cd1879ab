"""Consumers and watches of both clients, and the rules that they share."""
