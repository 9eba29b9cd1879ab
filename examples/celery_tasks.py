"""Tasks of Celery over zbus. Nothing but the URL says so.

    pip install "zbus-broker[celery]"
    celery --app examples.celery_tasks worker --loglevel INFO
    python -m examples.celery_tasks

The second command prints the results, a delayed one among them. (docs/howto/python-frameworks.md)
"""

from typing import Any

from celery import Celery, Task

app: Any = Celery("examples.celery_tasks", broker="zbus://127.0.0.1:15555", backend="rpc://")
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(bind=True, acks_late=True, max_retries=3)
def flaky(self: Task, text: str) -> str:
    """Fails twice, and is tried again a little later each time."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return text.upper()


def main() -> None:
    print("2 + 3 =", add.delay(2, 3).get(timeout=30))
    print("in a second:", add.apply_async((20, 22), countdown=1).get(timeout=30))
    print("after two failures:", flaky.delay("done").get(timeout=30))
    print("many:", sum(each.get(timeout=30) for each in [add.delay(n, n) for n in range(20)]))


if __name__ == "__main__":
    main()
