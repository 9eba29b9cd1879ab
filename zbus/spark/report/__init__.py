"""Reports: how much came, how large, how late it is read, and what is unusual about it."""
