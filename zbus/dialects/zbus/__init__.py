"""The zbus dialect: HTTP headers or URLs, answers matched by id."""
