"""The application side of an endpoint: its protocol, and clients in Python."""
