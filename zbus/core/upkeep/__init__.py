"""Work that no request asks for: retention, recovery of a failed partition, checks."""
