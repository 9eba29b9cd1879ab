"""Commands about the server: health, statistics, metrics, trackers, OpenAPI."""
