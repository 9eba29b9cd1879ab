"""Writing rows of Spark into topics, each exactly once."""
