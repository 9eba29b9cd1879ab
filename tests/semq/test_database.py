"""The database of a simulated machine ends with that machine."""

from __future__ import annotations

import gc
import threading
from weakref import ref

from tests.semq.database import open_database


def test_any_thread_may_collect_it() -> None:
    """A connection refers to itself, and the collector runs in the thread that happens to allocate.
    What a finalizer raises fails the test."""
    database = ref(open_database())
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    assert database() is None
