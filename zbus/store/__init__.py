"""Between the core and an engine: what is written, and what is read again at start."""
