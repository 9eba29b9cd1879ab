"""Endpoints of SEMQ: a durable outbox and inbox beside an application, and what talks to them."""
