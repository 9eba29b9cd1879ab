"""Messages of an archive or of a topic, put into a topic again (docs/reference/spark-jobs.md)."""
