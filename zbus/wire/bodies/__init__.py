"""Bodies of requests: chunks, compression, and how much may be on its way in."""
