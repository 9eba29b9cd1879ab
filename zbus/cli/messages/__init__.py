"""Commands about messages: produce, consume, follow, whole files, single messages."""
