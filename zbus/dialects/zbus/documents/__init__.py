"""JSON documents and metrics of topics, groups, servers and the broker itself."""
