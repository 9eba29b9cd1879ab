"""SEMQ's platform: messages between nodes, forwarded or stored, each of them once."""
