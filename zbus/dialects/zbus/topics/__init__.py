"""Commands about topics and groups: declare, query, seek, remove, webhooks."""
