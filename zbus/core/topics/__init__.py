"""Topics, partitions, groups and sessions, and what each of them keeps."""
