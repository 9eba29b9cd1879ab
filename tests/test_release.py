"""What a release is made of: the metadata of the package, and the commands that install it."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

from zbus import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_package_says_what_it_is() -> None:
    assert PROJECT["version"] == __version__
    assert PROJECT["readme"] == "README.md"  # the long description
    assert PROJECT["license"] == "MIT"
    assert [text_of(name)[:11] for name in PROJECT["license-files"]] == ["MIT License"]


def test_the_pythons_that_are_named_are_those_that_are_tested() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    (tested,) = re.findall(r"^MATRIX := (.*)$", text_of("Makefile"), re.MULTILINE)
    assert named == tested.split()
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_changelog_has_the_form_that_it_names() -> None:
    sections = re.findall(r"^##+ (.+)$", text_of("CHANGELOG.md"), re.MULTILINE)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert sections[0] == "[Unreleased]"
    for section in sections[1:]:
        assert section in kinds or re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", section)


def made(tmp_path: Path, target: str) -> str:
    """What make would do for a target, with this virtual environment."""
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")  # these tests may be run by make, too
    environment = {name: text for name, text in os.environ.items() if name not in of_make}
    done = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}", target],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_make_run_says_what_it_installs_and_only_then(tmp_path: Path) -> None:
    first = made(tmp_path, "run")
    assert f"A virtual environment is made in {tmp_path}." in first
    assert f"zbus and what it needs are installed in {tmp_path};" in first
    assert "--quiet" not in first
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    (tmp_path / "run.stamp").touch()
    assert made(tmp_path, "run").splitlines() == [f"exec {tmp_path}/bin/zbus serve "]
