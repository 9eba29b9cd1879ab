"""Which messages a partition has stored already, and which message ids are in use."""
