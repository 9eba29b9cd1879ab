"""Commands that move messages: produce, consume, acknowledge, call, transactions."""
