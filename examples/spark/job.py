"""A job of zbus as a file, for `spark-submit`:

spark-submit --master spark://host:7077 job.py archive --topics orders --to /shared/archive
"""

from zbus.spark.commands import spark

spark(prog_name="job.py")
