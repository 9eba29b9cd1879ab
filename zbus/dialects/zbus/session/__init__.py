"""Commands about who is connected: login, rights, connections."""
