"""What is stored, as bytes: batches, columns of messages, checkpoints of state."""
