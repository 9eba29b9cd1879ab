"""The files that run a cluster: by Docker Compose, and in Kubernetes."""

from __future__ import annotations

import ipaddress
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.docs.pages import ROOT
from tests.examples.manifests import FILES, FOLDER, environment, find, pod_of, read
from tests.limits import WAIT_S
from zbus import config
from zbus.cli.broker_options import SINGLE_OPTIONS
from zbus.cli.serve import serve
from zbus.config import Config
from zbus.server.loop.sockets import split_address
from zbus.server.process.replicated import read_access
from zbus.wire.tls import TlsStream
from zbus.workers.cluster.relay import Relay

SCRIPT = FOLDER.parent / "certificates.sh"
COMPOSE_FILE = FOLDER.parent / "compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
REPLICATED = ROOT / "examples/replicated"
NODES = ["zbus1", "zbus2", "zbus3"]
VERSIONS = ("1.30", kubernetes_validate.latest_version())  # the first with what is used here
MISSING = object()

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def change(document: Any, path: str, value: object) -> None:
    """Set what is there, or not yet, or take it away."""
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in steps:
        document = document[step]
    if value is MISSING:
        del document[last]
    else:
        document[last] = value


# -- Kubernetes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES)
def test_kubernetes_takes_the_manifests(file: str, version: str) -> None:
    for document in read(file):
        kubernetes_validate.validate(document, version, strict=True)


BAD = [
    ("nats.yml", 0, "spec/ports/0/port", "4222"),
    ("nats.yml", 1, "spec/selector", MISSING),
    ("nats.yml", 1, "spec/volumeClaimTemplates/0/spec/accessModes", "ReadWriteOnce"),
    ("nats.yml", 2, "spec/maxUnavailable", [1]),
    ("zbus.yml", 2, "spec/replicas", "three"),
    ("zbus.yml", 2, "spec/selector", MISSING),
    ("zbus.yml", 2, "spec/template/spec/containers/0/name", MISSING),
    ("zbus.yml", 2, "spec/template/spec/containers/0/readyProbe", {}),
    ("zbus.yml", 2, "spec/template/spec/containers/0/livenessProbe/httpGet/port", MISSING),
    ("zbus.yml", 2, "spec/template/spec/containers/0/env/0/valueFrom/field", {}),
    ("zbus.yml", 3, "apiVersion", "policy/v9"),
    ("zbus.yml", 4, "spec/ingress/1/ports/0/lastPort", 15_605),
]


@pytest.mark.parametrize(("file", "number", "path", "value"), BAD)
def test_kubernetes_would_not_take_others(file: str, number: int, path: str, value: object) -> None:
    document = read(file)[number]
    change(document, path, value)
    errors = (kubernetes_validate.ValidationError, kubernetes_validate.utils.SchemaNotFoundError)
    with pytest.raises(errors):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("address", ["10.1.2.3", "fd00::1:2"])
def test_a_node_takes_the_options_of_a_pod(address: str) -> None:
    loaded = config.load(environ=environment("zbus-1", address))
    access, _ = read_access(loaded)
    nats = find("nats.yml", "StatefulSet", "nats")
    pods = range(nats["replicas"])
    assert [host for host, _ in access.servers] == [f"nats-{n}.{nats['serviceName']}" for n in pods]
    assert loaded.node == "zbus-1"
    assert loaded.server_name == f"zbus-1.zbus-nodes.default.svc:{loaded.port}"
    assert split_address(loaded.relay_listen) == (address, 15_600)


def test_a_port_for_each_shard_is_open_to_nodes_alone() -> None:
    loaded = config.load(environ=environment("zbus-0", "10.1.2.3"))
    first = split_address(loaded.relay_listen)[1]
    _, container = pod_of("zbus")
    clients, *shards = [port["containerPort"] for port in container["ports"]]
    assert clients == loaded.port
    assert shards == list(range(first, first + loaded.shards))
    policy = find("zbus.yml", "NetworkPolicy", "zbus")
    to_clients, to_nodes = policy["ingress"]
    assert to_clients == {"ports": [{"port": "zbus"}]}
    assert to_nodes["ports"] == [{"port": shards[0], "endPort": shards[-1]}]
    assert to_nodes["from"] == [{"podSelector": policy["podSelector"]}]


def test_what_a_pod_reads_is_mounted() -> None:
    made = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = {each["name"]: each["files"] for each in made["secretGenerator"]}
    pod, container = pod_of("zbus")
    secrets = {
        volume["name"]: volume["secret"]["secretName"]
        for volume in pod["volumes"]
        if "secret" in volume
    }
    mounted = [
        f"{mount['mountPath']}/{file}"
        for mount in container["volumeMounts"]
        for file in files.get(secrets.get(mount["name"], ""), [])
    ]
    variables = environment("zbus-0", "10.1.2.3").values()
    assert sorted(mounted) == sorted(value for value in variables if value.startswith("/"))
    assert made["resources"] == list(FILES)


@pytest.mark.parametrize("name", ["nats", "zbus"])
def test_a_set_and_what_belongs_to_it(name: str) -> None:
    """Services, budgets and policies select the pods of the set, and no two are on one machine."""
    file = f"{name}.yml"
    found = find(file, "StatefulSet", name)
    labels = found["template"]["metadata"]["labels"]
    assert found["selector"]["matchLabels"] == labels
    for document in read(file):
        spec = document["spec"]
        if document["kind"] == "Service":
            assert spec["selector"] == labels
        elif document["kind"] == "PodDisruptionBudget":
            assert spec == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        elif document["kind"] == "NetworkPolicy":
            assert spec["podSelector"] == {"matchLabels": labels}
    assert find(file, "Service", found["serviceName"])["clusterIP"] == "None"
    affinity = found["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"] == {"matchLabels": labels}
    assert found["podManagementPolicy"] == "Parallel"


def test_nats_is_that_of_replicated_messages() -> None:
    def text_of(path: Path) -> str:
        return re.sub(r"nats-?\d(\.nats)?:", "NAME:", path.read_text()).partition("server_name")[2]

    assert text_of(FOLDER / "nats.conf") == text_of(REPLICATED / "nats.conf")
    routes = re.findall(r"nats://(nats-\d\.nats):6222", (FOLDER / "nats.conf").read_text())
    assert routes == ["nats-0.nats", "nats-1.nats", "nats-2.nats"]
    _, container = pod_of("nats")
    data = next(each for each in container["volumeMounts"] if each["name"] == "data")
    assert f"store_dir: {data['mountPath']}\n" in (FOLDER / "nats.conf").read_text()
    composed = yaml.safe_load((REPLICATED / "compose.yml").read_text())
    assert container["image"] == composed["services"]["nats1"]["image"]


# -- Docker Compose -------------------------------------------------------------------------------


def compose_fits(file: Path) -> bool:
    """Whether it has the form that the specification of Compose has a schema for."""
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    ended = subprocess.run([sys.executable, *words], capture_output=True, timeout=WAIT_S)
    assert ended.returncode in (0, 1), ended.stderr
    return ended.returncode == 0


@pytest.mark.parametrize("file", [COMPOSE_FILE, REPLICATED / "compose.yml"], ids=["c", "r"])
def test_compose_takes_the_file(file: Path) -> None:
    assert compose_fits(file)


BAD_COMPOSE = [
    ("services/zbus1/port", ["127.0.0.1:1:1"]),
    ("services/zbus1/restart", True),
    ("services/zbus1/depends_on/nats1", {"condition": "running"}),
    ("services/nats1/extends", {"service": 1}),
    ("networks/default/ipam/config/0/subnets", []),
]


@pytest.mark.parametrize(("path", "value"), BAD_COMPOSE)
def test_compose_would_not_take_others(path: str, value: object, tmp_path: Path) -> None:
    document = yaml.safe_load(COMPOSE_FILE.read_text())
    change(document, path, value)
    file = tmp_path / "compose.yml"
    file.write_text(yaml.safe_dump(document))
    assert not compose_fits(file)


def load(name: str, folder: str = "/certificates") -> Config:
    """The options of a node; its certificates may be elsewhere."""
    service = COMPOSE["services"][name]
    command, *words = service["command"]
    assert command == "serve"
    params = serve.make_context(command, words).params
    options = {key: params[key] for key in SINGLE_OPTIONS if params[key] is not None}
    environ = {
        key: value.replace("/certificates", folder) for key, value in service["environment"].items()
    }
    return config.load(environ=environ, options=options)


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_compose_takes_its_options(name: str) -> None:
    service, loaded = COMPOSE["services"][name], load(name)
    access, _ = read_access(loaded)
    servers = [host for host, _ in access.servers]
    assert sorted(service["depends_on"]) == ["certificates", *servers]
    assert loaded.node == name
    port = loaded.server_name.rpartition(":")[2]
    assert service["ports"] == [f"127.0.0.1:{port}:{loaded.port}"]
    address = service["networks"]["default"]["ipv4_address"]
    assert split_address(loaded.relay_listen)[0] == address
    (network,) = COMPOSE["networks"]["default"]["ipam"]["config"]
    assert ipaddress.ip_address(address) in ipaddress.ip_network(network["subnet"])
    assert ipaddress.ip_address(address) not in ipaddress.ip_network(network["ip_range"])
    volume, path, _ = service["volumes"][0].split(":")
    assert volume in COMPOSE["volumes"]
    assert Path(loaded.relay_cert_file).parent == Path(path)
    assert (COMPOSE_FILE.parent / service["build"] / "Dockerfile").exists()


def test_the_nats_servers_of_compose_are_those_of_replicated_messages() -> None:
    others = yaml.safe_load((REPLICATED / "compose.yml").read_text())["services"]
    for name in ("nats1", "nats2", "nats3"):
        extended = COMPOSE["services"][name]["extends"]
        assert (COMPOSE_FILE.parent / extended["file"]).resolve() == REPLICATED / "compose.yml"
        assert extended["service"] == name
        volumes = [volume.partition(":")[0] for volume in others[name]["volumes"]]
        assert volumes[1] in COMPOSE["volumes"]


def make_certificates(folder: Path, *names: str) -> dict[str, bytes]:
    """All files that are in the folder then."""
    command = ["sh", str(SCRIPT), *names]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=WAIT_S, check=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@needs_openssl
def test_certificates(tmp_path: Path) -> None:
    """Each node has one, and what is there stays when more are made."""
    script = COMPOSE["services"]["certificates"]["entrypoint"][-1]
    made = re.search(r"sh /certificates.sh ([\w ]+) &&", script)
    assert made is not None
    assert made[1].split() == NODES

    before = make_certificates(tmp_path, *NODES[:2])
    after = make_certificates(tmp_path, *NODES)
    assert after.items() > before.items()
    files = [f"{name}.{kind}" for name in ("ca", *NODES) for kind in ("key", "pem")]
    assert sorted(after) == sorted(files)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    for name in NODES:
        assert Relay.of(load(name, str(tmp_path))) is not None


@needs_openssl
def test_one_authority_replaces_another(tmp_path: Path) -> None:
    """Nodes that believe both believe each other."""
    authorities = []
    for name in NODES[:2]:
        folder = tmp_path / name
        folder.mkdir()
        authorities.append(make_certificates(folder, name)["ca.pem"])
    nodes: list[Relay] = []
    for name in NODES[:2]:
        (tmp_path / name / "ca.pem").write_bytes(b"".join(authorities))
        relay = Relay.of(load(name, str(tmp_path / name)))
        assert relay is not None
        nodes.append(relay)
    for one, other in (nodes, nodes[::-1]):
        server, client = TlsStream(one.server), TlsStream(other.client, client=True)
        for _ in range(3):
            server.receive(client.encrypt(b""))
            client.receive(server.encrypt(b""))
        assert (server.error, client.error) == ("", "")
        assert server.established
        assert client.established
