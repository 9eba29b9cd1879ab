"""Commands about stored messages: peek, read, explain, delete, reschedule, redrive."""
