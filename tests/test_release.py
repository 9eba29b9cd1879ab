"""What a release is made of: the metadata of the package, and the commands that install it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

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
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS")  # these tests may be run by make, too
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


@pytest.mark.check
def test_what_is_shipped(tmp_path: Path) -> None:
    """The wheel is the package, with the console and without tests; in the source distribution is
    all that the pages name. It wants the network, for the builder."""

    def python(*arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "builder")}
        command = [sys.executable, "-m", *arguments]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)

    python("pip", "install", "--quiet", "--target", str(tmp_path / "builder"), "hatchling>=1.27")
    python("hatchling", "build", "-d", str(tmp_path))
    [wheel], [source] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        files = set(opened.namelist())
    names = {"zbus", "pyspark_zbus.py", f"zbus_broker-{__version__}.dist-info"}
    assert {name.split("/")[0] for name in files} == names
    assert {"zbus/py.typed", "zbus/console/index.html", "zbus/client/methods.py"} <= files
    assert {"zbus/javascript/zbus.js", "zbus/javascript/zbus.d.ts"} <= files
    with tarfile.open(source) as opened_source:
        shipped = {name.partition("/")[2] for name in opened_source.getnames()}
    wanted = {"packaging/zbus.service", "packaging/healthcheck.py", "Dockerfile", "mkdocs.yml"}
    wanted |= {"LICENSE", "docs/howto/production.md", "tests/test_release.py"}
    assert files - shipped == {name for name in files if ".dist-info/" in name}
    assert wanted <= shipped
