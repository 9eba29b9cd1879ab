"""Tasks of taskiq over zbus.

    pip install "zbus-broker[taskiq]"
    taskiq worker examples.taskiq_tasks:broker
    python examples/taskiq_tasks.py

(docs/howto/python-frameworks.md)
"""

import asyncio
import os

from zbus.integrations.taskiq import ZbusBroker

broker = ZbusBroker(os.environ.get("ZBUS", "http://127.0.0.1:15555"))


@broker.task
async def add(a: int, b: int) -> int:
    print(f"{a} + {b} = {a + b}", flush=True)
    return a + b


async def main() -> None:
    await broker.startup()
    await add.kiq(2, 3)
    await add.kicker().with_labels(delay=1).kiq(20, 22)  # in a second
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
