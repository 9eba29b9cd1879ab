"""`python -m zbus.spark <job>`: the same as `zbus spark <job>`."""

from zbus.spark.commands import spark

spark(prog_name="zbus spark")
