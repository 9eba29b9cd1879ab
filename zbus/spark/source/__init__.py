"""Reading topics with Spark: from a running broker, or from its files."""
