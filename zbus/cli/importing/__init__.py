"""`zbus import`: rows of files and of other brokers as messages, each of them once."""
