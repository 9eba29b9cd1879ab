"""The dialect of camellia-delay-queue: `docs/reference/camellia.md`."""
