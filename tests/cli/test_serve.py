"""`zbus serve`: which configuration the broker is started with."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from zbus.cli import main
from zbus.config import Config


def test_serve_starts_a_broker_with_the_options_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Config] = []

    def run(config: Config) -> int:
        started.append(config)
        return 7

    server = ModuleType("zbus.server.process.serve")
    server.run = run  # type: ignore[attr-defined]  # a module of the test's own
    monkeypatch.setitem(sys.modules, "zbus.server.process.serve", server)
    file = tmp_path / "zbus.toml"
    file.write_text("fields_max = 50\nport = 1\ntopics_max = 5\n", encoding="utf-8")
    result = CliRunner().invoke(
        main,
        [
            "serve",
            "--config",
            str(file),
            "--port",
            "0",
            "--data-dir",
            str(tmp_path),
            "--set",
            "idle-timeout-ms=1000",
            "--set",
            "segment_bytes = 1 MiB",
            "--token-file",
            "tokens.toml",
            "--insecure",
        ],
        env={
            **{"ZBUS_TOPICS_MAX": "6", "ZBUS_URL": "http://elsewhere:1", "ZBUS_TOKEN": "t"},
            **{"ZBUS_CA": "ca.pem", "ZBUS_CERT": "me.pem"},
        },
    )
    assert result.exit_code == 7, result.output
    assert started == [
        Config(
            fields_max=50,
            port=0,
            topics_max=6,
            data_dir=tmp_path,
            idle_timeout_ms=1000,
            segment_bytes=1 << 20,
            token_file="tokens.toml",
            insecure=True,
        )
    ]


def test_serve_help_shows_defaults() -> None:
    text = CliRunner().invoke(main, ["serve", "--help"]).stdout
    assert "[default: 15555]" in text
    assert "memory|os|disk" in text
