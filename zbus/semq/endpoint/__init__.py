"""The rules of an endpoint: events in, effects out, one SQLite transaction a step."""
