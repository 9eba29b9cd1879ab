"""The average delay of departures by airport and hour, of flights in a topic or in an archive.

python -m examples.flights.publish
python -m examples.spark.flights                        of the topic
python -m examples.spark.flights --archive archive      of what `zbus spark archive` has made
python -m examples.spark.flights --data-dir data        of files, without a broker
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from zbus.spark import open_archive
from zbus.spark.session import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "origin string, hour int, dep_delay int"
SQL = f"""
    SELECT flight.origin AS airport, flight.hour AS hour, count(flight.dep_delay) AS departures,
           avg(flight.dep_delay) AS average_delay
    FROM (SELECT from_json(cast(body AS string), '{SCHEMA}') AS flight FROM {{messages}})
    GROUP BY airport, hour
    ORDER BY airport, hour
"""


def delays(messages: DataFrame) -> DataFrame:
    """By airport and hour."""
    return messages.sparkSession.sql(SQL, messages=messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", default="127.0.0.1:15555")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--archive")
    parser.add_argument("--data-dir")
    chosen = parser.parse_args()
    spark = start("flights")
    if chosen.archive:
        messages = open_archive(spark, chosen.archive)
    else:
        where = {"path": chosen.data_dir} if chosen.data_dir else {"broker": chosen.broker}
        reader = spark.read.format("zbus").schema("body binary")
        messages = reader.options(topic=chosen.topic, **where).load()
    delays(messages).show(100, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
