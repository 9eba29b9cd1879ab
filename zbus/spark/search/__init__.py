"""Find messages: in an archive, in live topics, or in both (docs/reference/spark-search.md).

What a message has to be like is said once (`conditions`), and so are the results (`results`). Two
engines look for them: `local` in this process, with Arrow, and `frame` with Spark.
"""
