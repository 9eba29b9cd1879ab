"""Tools to test programs that use zbus: a whole broker in one process under virtual time."""
