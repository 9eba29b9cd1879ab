"""The default engine: segment files in a directory of the local file system."""
