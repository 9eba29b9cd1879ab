"""Storage engines: they make batches durable and read them back, and know nothing of groups."""
