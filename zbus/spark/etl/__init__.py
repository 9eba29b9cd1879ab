"""Topics through a query of SQL into a topic or into files (docs/reference/spark-jobs.md)."""
