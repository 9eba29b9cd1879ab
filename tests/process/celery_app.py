"""The application of the campaign with Celery: a task that writes its number down."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery

app: Any = Celery("campaign", broker=os.environ.get("BROKER_URL", "zbus://127.0.0.1:15555"))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    broker_connection_max_retries=None,
    broker_transport_options={"visibility_timeout": float(os.environ.get("LEASE_S", "60"))},
    worker_cancel_long_running_tasks_on_connection_loss=False,
)


@app.task
def note(number: int, seconds: float = 0.0) -> None:
    """One write at the end of a file: what is in it was done, and how often."""
    time.sleep(seconds)
    file = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"%d\n" % number)
    os.close(file)
