"""Settings of the stream of a shard: what it is made with, and what must be so in one that is there
already. A stream is never changed here; the broker does not serve with one that does not fit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

import attrs

from zbus.storage.jetstream.subjects import Subjects

FORMAT: Final = "1"

REQUIRED: Final[dict[str, object]] = {
    "retention": "limits",
    "storage": "file",
    "discard": "new",
    "allow_direct": True,
    "allow_atomic": True,
    "sealed": False,
    "deny_purge": False,
    "mirror": None,
    "sources": None,
}
"""Fields that must be so: anything else loses messages, or cannot be served."""

LIMITS: Final = ("max_msgs", "max_age", "max_msgs_per_subject")
"""Limits that must not be set: they remove messages behind the broker's back."""

_UNLIMITED: Final = (-1, 0, None)


@attrs.define(frozen=True)
class Cluster:
    """Brokers that share the shards of all topics, and how the streams of these are to be kept."""

    name: str
    replicas: int = 3
    bytes_max: int = 0  # of a stream that is made now; 0 = no limit
    shards: int = 1  # never changed


def make_settings(cluster: Cluster, subjects: Subjects) -> dict[str, object]:
    """Of a stream that is made now."""
    identity = uuid.uuid4().hex
    return {
        **{name: value for name, value in REQUIRED.items() if value},
        "name": subjects.stream,
        "subjects": [subjects.all],
        "num_replicas": cluster.replicas,
        "max_bytes": cluster.bytes_max or -1,
        "metadata": {
            "zbus": FORMAT,
            "zbus-shards": str(cluster.shards),
            "zbus-identity": identity,
        },
    }


def read_identity(config: Mapping[str, Any]) -> str:
    """The random id of the stream; empty if the broker did not make it."""
    metadata = config.get("metadata") or {}
    identity = metadata.get("zbus-identity")
    return identity if isinstance(identity, str) else ""


def find_problems(config: Mapping[str, Any], cluster: Cluster, subjects: Subjects) -> list[str]:
    """Why a stream with these settings must not be written, field by field."""
    problems = [
        f"{name} is {config.get(name)!r}, must be {value!r}"
        for name, value in REQUIRED.items()
        if (config.get(name) or None) != (value or None)
    ]
    problems += [
        f"{name} is {config[name]}, and such a limit removes messages: it must not be set"
        for name in LIMITS
        if config.get(name) not in _UNLIMITED
    ]
    if config.get("subjects") != [subjects.all]:
        problems.append(f"subjects is {config.get('subjects')!r}, must be {[subjects.all]!r}")
    if config.get("num_replicas", 1) < cluster.replicas:
        problems.append(f"num_replicas is {config.get('num_replicas')}, must be {cluster.replicas}")
    metadata = config.get("metadata") or {}
    if metadata.get("zbus", FORMAT) != FORMAT:
        problems.append(
            f"metadata zbus is {metadata['zbus']!r}, this version of zbus writes {FORMAT!r}"
        )
    shards = metadata.get("zbus-shards", "1")
    if shards != str(cluster.shards):
        problems.append(f"it was made with --shards {shards}, not {cluster.shards}")
    return problems
