"""Webhooks: the messages of a group are sent to an HTTP endpoint, instead of being asked for.

`pushing` is a consumer of such groups inside of the broker's loop: it pulls, and acknowledges or
gives back. `courier` sends, in a thread of its own. `request` says what is sent.
"""
