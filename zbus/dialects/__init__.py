"""What clients speak: zbus, Adf, camellia, MQCloud and SEMQ, a folder each."""
