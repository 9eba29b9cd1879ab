"""What can be asked of a broker: one module for each family of requests."""
