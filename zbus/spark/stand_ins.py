"""Scripts in front of programs that Spark starts, which it gives more than they should have."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path


def python(environment: Mapping[str, str] = os.environ) -> Path:
    """This one, without the zip of PySpark before the installed PySpark: a zip keeps nothing that
    is compiled, so each worker would compile it for itself, in half a second."""
    program = shlex.quote(sys.executable)
    script = f'#!/bin/sh\nPYTHONPATH=${{PYTHONPATH#*-src.zip:}} exec {program} "$@"\n'
    name = sha256(script.encode()).hexdigest()[:16]  # a session's own must not become another one
    return written(script, f"python-{name}/bin/python", environment)


def written(script: str, name: str, environment: Mapping[str, str]) -> Path:
    """Where it is now: in the cache of this user, if that can be written to."""
    base = environment.get("XDG_CACHE_HOME")
    cache = (Path(base) if base else Path.home() / ".cache") / "zbus"
    try:
        return _written(script, cache / name)
    except OSError:  # the home of a service may be read-only
        return _written(script, Path(tempfile.mkdtemp(prefix="zbus-"), name))


def _written(script: str, place: Path) -> Path:
    if place.is_file() and place.read_text() == script:
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as file:
        file.write(script)
    os.chmod(file.name, 0o755)
    os.replace(file.name, place)
    return place
