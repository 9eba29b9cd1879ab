"""What an endpoint program needs to begin, and what keeps it from that."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from tests.semq.certificates import both, make
from zbus.semq import connect
from zbus.semq.program.start import CannotStart, Settings, opened


def settings(folder: Path, **given: Any) -> Settings:
    return attrs.evolve(
        Settings(database=folder / "db", node="1:10008", socket=folder / "s"), **given
    )


async def test_it_begins_and_ends(tmp_path: Path) -> None:
    """The socket goes with it; what it left behind when it was killed is no hindrance."""
    (tmp_path / "s").touch()
    (tmp_path / "s").unlink()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    for _ in range(2):
        async with opened(settings(tmp_path)) as running:
            assert running.direct == ()
            with pytest.raises(CannotStart, match="in use by another program"):
                async with opened(settings(tmp_path, socket=tmp_path / "other")):
                    pass
            with pytest.raises(CannotStart, match="another program listens at"):
                async with opened(settings(tmp_path, database=tmp_path / "other")):
                    pass
        assert not (tmp_path / "s").exists()


async def test_a_link_to_the_database_is_the_database(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "db")
    async with opened(settings(tmp_path, database=tmp_path / "link")):
        with pytest.raises(CannotStart, match="in use by another program"):
            async with opened(settings(tmp_path, socket=tmp_path / "other")):
                pass


async def test_where_others_connect(tmp_path: Path) -> None:
    pem = both(tmp_path / "c.pem", *make("c"))
    given = {"listen": ("127.0.0.1", 0), "listen_cert": pem}
    async with opened(settings(tmp_path, **given)) as running:
        host, _, port = running.direct[0].partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
    given = {"listen": ("127.0.0.1", 0), "advertise": ("example.org:7000",)}
    async with opened(settings(tmp_path, **given)) as running:
        assert running.direct == ("example.org:7000",)


CANNOT: list[tuple[dict[str, Any], str]] = [
    ({"node": "10008"}, "is no node address"),
    ({"node": "4:1"}, "is no node address"),
    ({"node": "0:1"}, "is a platform"),
    ({"database": Path("absent/db")}, r"No such file or directory"),
    ({"database": Path("file")}, "is no database"),
    ({"socket": Path("absent/s")}, "cannot listen at"),
    ({"socket": Path("x" * 120)}, "at most 107 bytes"),
    ({"socket": Path("file")}, "is there, and is no socket"),
    ({"listen": ("192.0.2.1", 7_000)}, "cannot listen at 192.0.2.1:7000"),
    ({"listen": ("0.0.0.0", 7_000)}, "say how they reach this machine"),
    ({"listen_cert": Path("absent.pem")}, "is no certificate with its key"),
    ({"listen_cert": Path("file")}, "is no certificate with its key"),
    ({"certificates": Path("absent")}, "is no folder of certificates"),
    ({"keys": (Path("absent.pem"),)}, "there is no certificate"),
    ({"keys": (Path("file"),)}, "has no certificate in PEM"),
]


def open_below(folder: Path) -> list[Path]:
    """The files of a folder that this process has open."""
    files = [file.resolve() for file in Path("/proc/self/fd").iterdir()]
    return [file for file in files if file.is_relative_to(folder)]


@pytest.mark.parametrize(("given", "why"), CANNOT, ids=lambda value: str(value)[:30])
async def test_what_keeps_it_from_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("something else")
    with pytest.raises(CannotStart, match=why):
        async with opened(settings(tmp_path, **given)):
            pass
    assert open_below(tmp_path) == []
    async with opened(settings(tmp_path)):  # nothing is left of the attempt
        pass


async def test_a_backup_begins_a_new_epoch(tmp_path: Path) -> None:
    epochs = []
    for renewed in (False, False, True):
        wanted = settings(tmp_path, renewed=renewed)
        async with opened(wanted) as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.program.run)
            async with connect(tmp_path / "s") as semq:
                epochs.append((await semq.stat())["epoch"])
            tasks.cancel_scope.cancel()
    assert epochs[0] == epochs[1] != epochs[2]
