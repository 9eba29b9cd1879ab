"""Connections of the clients: sockets, TLS, requests under way, reconnects, forks."""
