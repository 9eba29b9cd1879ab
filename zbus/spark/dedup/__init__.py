"""Messages that are there more than once (docs/reference/spark-jobs.md)."""
