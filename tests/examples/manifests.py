"""The Kubernetes manifests of `examples/cluster`, and what a pod of them is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import ROOT

FOLDER = ROOT / "examples/cluster/kubernetes"
FILES = ("nats.yml", "zbus.yml")


def read(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def find(file: str, kind: str, name: str) -> Any:
    """The part `spec` of an object."""
    return next(
        each["spec"]
        for each in read(file)
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def pod_of(name: str) -> Any:
    """What a StatefulSet makes, and its only container."""
    pod = find(f"{name}.yml", "StatefulSet", name)["template"]["spec"]
    return pod, pod["containers"][0]


def environment(name: str, address: str, secrets: Path | None = None) -> dict[str, str]:
    """Of the node in the pod of that name and address; `secrets` is where its files are."""
    fields = {
        "metadata.name": name,
        "metadata.namespace": "default",
        "status.podIP": address,
    }
    pod, container = pod_of("zbus")
    assert not pod["enableServiceLinks"]
    found: dict[str, str] = {}
    for variable in container["env"]:
        if "value" in variable:  # a variable may have those that stand before it
            value = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], variable["value"])
        else:
            value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        if secrets is not None and value.startswith("/etc/"):
            value = str(secrets / Path(value).name)
        found[variable["name"]] = value
    return found
