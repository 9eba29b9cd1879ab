"""A broker that begins with more descriptors than `select` takes: `python -m
tests.process.many_files serve ...`."""

from __future__ import annotations

import os
import resource

from zbus.cli import main

if __name__ == "__main__":
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    for _ in range(1_100):
        os.dup(0)
    main(prog_name="zbus")
