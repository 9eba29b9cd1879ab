"""Dead letters: what died of what, and the way back (docs/reference/spark-jobs.md)."""
