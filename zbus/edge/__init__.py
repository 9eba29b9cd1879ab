"""What every dialect stands behind: connections, routing, rights, hostile pages."""
