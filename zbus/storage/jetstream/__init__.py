"""The replicated engine: one stream of NATS JetStream, written by one owner at a time."""
