"""Values that the rest of the core is made of: messages, errors, limits, filters."""
