"""Bytes to requests and replies to bytes. Sans-IO: no socket, clock, file or task is known here.

`http.HttpReader` turns the bytes of one connection into requests, `heads.Heads` reads request
heads quickly, `judge` reads them carefully, `replies` writes answers, `target` and `messages` read
what is inside a request: its target, and the container format for many messages.
"""
