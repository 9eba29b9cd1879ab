"""Several processes that share out the topics of one server (decision 49)."""
