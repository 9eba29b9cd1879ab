"""How far a consumer group is in a partition: a cursor, and the exceptions to it."""
