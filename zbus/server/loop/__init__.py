"""The data path: sockets, the event loop, what it reads and sends, its timeouts."""
