"""TLS, several addresses and Unix sockets, over real sockets."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.authority import Files, client_context, write_files
from tests.bench.measure import cpu_seconds
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess, Wire, established, request, run_serve

TLS = "https://127.0.0.1:0"
PLAIN = "http://127.0.0.1:0"
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)


class TlsBroker(BrokerProcess):
    """One that listens at several addresses: https first, then plain, then a Unix socket."""

    def __init__(self, folder: Path, *options: str, listen: tuple[str, ...] = ()) -> None:
        self.files = write_files(folder)
        self.socket_path = folder / "zbus.sock"
        addresses = listen or (TLS, PLAIN, f"unix:{self.socket_path}")
        super().__init__(
            folder / "data",
            *[word for address in addresses for word in ("--listen", address)],
            "--tls-cert-file",
            str(self.files.certificate),
            "--tls-key-file",
            str(self.files.key),
            *options,
        )
        log = self.wait_for("listening", len(addresses))
        found = re.findall(r"listening address=http://127.0.0.1:(\d+)", log)
        self.plain_port = int(found[0]) if found else 0

    def wait_for(self, text: str, times: int = 1) -> str:
        """The log, once it says this so many times."""
        deadline = time.monotonic() + WAIT_S
        while self.log().count(text) < times:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)
        return self.log()

    def secure(self, context: ssl.SSLContext | None = None) -> Wire:
        return SecureWire(self.port, context or client_context())

    def pieces(self, context: ssl.SSLContext | None = None) -> PieceByPiece:
        return PieceByPiece(self.port, context or client_context())

    def plain(self) -> Wire:
        return Wire(self.plain_port)


class SecureWire(Wire):
    """A TLS client that talks like a raw one."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        raw = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        try:
            self.sock = context.wrap_socket(
                raw, server_hostname="localhost", suppress_ragged_eofs=False
            )
        except OSError:
            self.sock = raw
            raw.close()
            raise
        self._buffer = b""


class PieceByPiece(Wire):
    """A TLS client whose bytes are sent by hand."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        """The first flight."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def take(self) -> None:
        """Wait for bytes of the broker."""
        data = self.sock.recv(65_536)
        assert data
        self.incoming.write(data)

    def shake(self) -> None:
        """All of the handshake but its last flight, which is still in `outgoing`."""
        self.send(self.hello())
        while True:
            self.take()
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            return


QUICK = (
    "--set",
    "head_timeout_ms=1500",
    "--set",
    "body_timeout_ms=1500",
    "--set",
    "idle_timeout_ms=4000",
    "--set",
    "stall_timeout_ms=4000",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("tls"), *QUICK) as process:
        assert process.secure().get("/T?cmd=declare").status == 200
        yield process
        assert process.secure().get("/T?cmd=query").status == 200, "the broker outlived all of it"
        assert process.stop() == 0
        assert "Traceback" not in process.log()


# -- talking --------------------------------------------------------------------------------


def test_the_same_topics_at_every_address(broker: TlsBroker) -> None:
    assert broker.secure().get("/Shared?cmd=declare").status == 200
    assert broker.plain().get("/Shared", body=b"from plain").status == 200
    assert broker.secure().get("/Shared?cmd=consume").body == b"from plain"
    assert broker.secure().get("/Shared", body=b"from tls").status == 200
    unix = socket.socket(socket.AF_UNIX)
    unix.connect(str(broker.socket_path))
    unix.sendall(request("/Shared?cmd=consume", "connection: close"))
    unix.settimeout(WAIT_S)
    answer = b"".join(iter(lambda: unix.recv(65_536), b""))
    unix.close()
    assert answer.endswith(b"\r\n\r\nfrom tls")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_of_the_standard_library(broker: TlsBroker, version: ssl.TLSVersion) -> None:
    connection = http.client.HTTPSConnection(
        "127.0.0.1", broker.port, timeout=WAIT_S, context=client_context(version=version)
    )
    for number in range(3):
        connection.request("POST", "/T", body=b"%d" % number)
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
    connection.close()


@needs_curl
def test_curl(broker: TlsBroker) -> None:
    base = ["curl", "-sS", "--max-time", "20"]
    trust = ["--cacert", str(broker.files.authority)]
    url = f"https://127.0.0.1:{broker.port}/T?cmd=declare"

    def curl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*base, *words], capture_output=True, text=True, check=False)

    said = json.loads(curl(*trust, url).stdout)
    assert said["serverAddress"] == {"address": f"127.0.0.1:{broker.port}", "sslEnabled": True}
    assert curl(url).returncode == 60  # an authority that it does not know
    assert curl(*trust, "--tls-max", "1.1", url).returncode == 35
    unix = curl("--unix-socket", str(broker.socket_path), "http://localhost/T?cmd=query")
    assert json.loads(unix.stdout)["topicName"] == "T"


def test_replies_of_any_length_and_messages_of_any_length(broker: TlsBroker) -> None:
    wire = broker.secure()
    assert wire.get("/Long?cmd=declare").status == 200
    for size in (1, 16_383, 16_384, 16_385, 65_536, 1_000_000):
        body = os.urandom(size)
        assert wire.get("/Long", body=body).status == 200
        assert wire.get("/Long?cmd=consume").body == body


def test_a_thousand_requests_at_once(broker: TlsBroker) -> None:
    wire = broker.secure()
    wire.send(request("/T", body=b"x" * 100) * 1_000)
    assert [wire.read().status for _ in range(1_000)] == [200] * 1_000


def test_a_client_that_takes_its_replies_late_gets_all_of_them(broker: TlsBroker) -> None:
    """More than what output_bytes_max and the sockets hold: the broker stops, and goes on."""
    wire = broker.secure()
    assert wire.get("/Late?cmd=declare").status == 200
    body = os.urandom(900_000)
    assert wire.get("/Late", body=body).status == 200
    for _ in range(20):
        wire.send(request("/Late?cmd=consume&offset=0"))
    assert [wire.read().body == body for _ in range(20)] == [True] * 20
    assert wire.get("/?cmd=ping").status == 200


def test_a_client_that_takes_nothing_is_cut_off(broker: TlsBroker) -> None:
    wire = broker.secure()
    assert wire.get("/Stuck?cmd=declare").status == 200
    assert wire.get("/Stuck", body=bytes(1_000_000)).status == 200
    for _ in range(50):
        wire.send(request("/Stuck?cmd=consume&offset=0"))
    while established(broker.port, wire):
        time.sleep(0.1)


def test_all_addresses_share_the_connections(tmp_path: Path) -> None:
    with TlsBroker(tmp_path, "--set", "connections_max=12") as broker:
        wires = [broker.secure() for _ in range(6)] + [broker.plain() for _ in range(10)]
        for wire in wires:
            wire.send(request("/?cmd=ping"))
        assert [wire.read().status for wire in wires[:12]] == [200] * 12
        readable, _, _ = select.select([wire.sock for wire in wires[12:]], [], [], 0.2)
        assert not readable
        for wire in wires[:6]:
            wire.close()
        assert [wire.read().status for wire in wires[12:]] == [200] * 4


def test_a_websocket(broker: TlsBroker) -> None:
    wire = broker.secure()
    wire.send(
        request(
            "/",
            "upgrade: websocket",
            "connection: upgrade",
            "sec-websocket-version: 13",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        )
    )
    assert wire.read().status == 101
    wire.send(b"\x89\x84\0\0\0\0ping")
    assert wire.sock.recv(100) == b"\x8a\x04ping"
    wire.close()


# -- ending ---------------------------------------------------------------------------------


def test_connection_close_ends_with_a_goodbye(broker: TlsBroker) -> None:
    """Nothing was cut off, TLS says: an end without it would be an error here."""
    wire = broker.secure()
    assert wire.get("/?cmd=ping", "connection: close").status == 200
    assert wire.sock.recv(100) == b""


def test_a_silent_connection_ends_with_a_goodbye(broker: TlsBroker) -> None:
    wire = broker.secure()
    assert wire.get("/?cmd=ping").status == 200
    assert wire.sock.recv(100) == b""


def test_a_client_that_says_goodbye_gets_its_replies_and_a_goodbye(broker: TlsBroker) -> None:
    wire = broker.pieces()
    wire.shake()
    wire.tls.write(request("/T", body=b"x") * 50)
    with pytest.raises(ssl.SSLWantReadError):
        wire.tls.unwrap()
    wire.send(wire.outgoing.read())
    said, goodbye = b"", False
    while not goodbye:
        try:
            said += wire.tls.read(65_536)
        except ssl.SSLWantReadError:
            wire.take()
        except ssl.SSLZeroReturnError:
            goodbye = True
    assert said.count(b"HTTP/1.1 200 OK") == 50
    assert wire.at_end()


def test_a_client_that_shuts_its_sending_side_gets_its_replies(broker: TlsBroker) -> None:
    wire = broker.secure()
    wire.send(request("/T", body=b"x") * 50)
    socket.socket.shutdown(wire.sock, socket.SHUT_WR)
    assert [wire.read().status for _ in range(50)] == [200] * 50
    assert wire.sock.recv(100) == b""


def test_the_end_of_the_broker_is_a_goodbye(tmp_path: Path) -> None:
    with TlsBroker(tmp_path) as broker:
        wire = broker.secure()
        assert wire.get("/T?cmd=declare").status == 200
        waiting = broker.secure()
        waiting.send(request("/T?cmd=consume&timeout=60000"))
        assert broker.secure().get("/?cmd=ping").status == 200
        assert broker.stop() == 0
        assert wire.sock.recv(100) == b""
        assert waiting.read().status == 204
        assert waiting.sock.recv(100) == b""
        assert not broker.socket_path.exists()


# -- peers that do it wrong -------------------------------------------------------------------


def test_plain_http_to_the_tls_port(broker: TlsBroker) -> None:
    wire = Wire(broker.port)
    wire.send(request("/T?cmd=query"))
    answer = wire.read()
    assert (answer.status, answer.body) == (400, b"400: this port speaks TLS: use https")
    assert wire.at_end()
    broker.wait_for("why=no TLS came")


def test_tls_to_the_plain_port(broker: TlsBroker) -> None:
    with pytest.raises(ssl.SSLError):
        SecureWire(broker.plain_port, client_context())


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_client_that_ends_at_any_byte(broker: TlsBroker, end: str) -> None:
    context = client_context()
    hello = PieceByPiece(broker.port, context).hello()
    for position in range(0, len(hello), 7):
        wire = broker.pieces(context)
        wire.send(wire.hello()[:position])
        getattr(wire, end)()
    for position in range(0, 300, 7):  # the end of the handshake, and the first request
        wire = broker.pieces(context)
        wire.shake()
        wire.tls.write(request("/T?cmd=produce", body=b"0123456789"))
        wire.send(wire.outgoing.read()[:position])
        getattr(wire, end)()
    assert broker.secure().get("/?cmd=ping").status == 200


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\3\1\2\0\1\0\1\xfc\3\3"])
def test_a_handshake_that_does_not_go_on(broker: TlsBroker, said: bytes) -> None:
    wire = Wire(broker.port)
    wire.send(said)
    assert wire.at_end()
    broker.wait_for("why=it took too long")


def test_a_handshake_that_drips(broker: TlsBroker) -> None:
    """A byte now and then does not buy more time."""
    wire = broker.pieces()
    hello = wire.hello()
    began = time.monotonic()
    try:
        for position in range(len(hello)):
            wire.send(hello[position : position + 1])
            time.sleep(0.05)
    except OSError:
        pass
    assert time.monotonic() - began < len(hello) * 0.05


def test_half_a_record_then_silence(broker: TlsBroker) -> None:
    wire = broker.pieces()
    wire.shake()
    wire.tls.write(request("/?cmd=ping"))
    wire.send(wire.outgoing.read()[:-1])
    while not wire.at_end():
        pass


def test_half_a_request_then_silence(broker: TlsBroker) -> None:
    wire = broker.secure()
    wire.send(b"GET /T HTTP/1.1\r\nhost:")
    assert wire.read().status == 408
    assert wire.sock.recv(100) == b""


def test_two_hundred_handshakes_while_plain_clients_go_on(broker: TlsBroker) -> None:
    plain, slowest = broker.plain(), 0.0
    assert plain.get("/?cmd=ping").status == 200
    statuses: list[int] = []

    def shake(count: int) -> None:
        context = client_context()
        for _ in range(count):
            wire = broker.secure(context)
            statuses.append(wire.get("/?cmd=ping").status)
            wire.close()

    threads = [threading.Thread(target=shake, args=(10,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert plain.get("/?cmd=ping").status == 200
        slowest = max(slowest, time.monotonic() - began)
    for thread in threads:
        thread.join()
    assert statuses == [200] * 200
    assert slowest < (time.monotonic() - begun) / 3, "it waited for most of them"


def test_idle_connections_cost_no_time(broker: TlsBroker) -> None:
    wires = [broker.secure() for _ in range(20)]
    before = cpu_seconds(broker.process.pid)
    time.sleep(1)
    assert cpu_seconds(broker.process.pid) - before < 0.2
    for wire in wires:
        wire.close()


class OpenSsl:
    """OpenSSL's own client, which can do what Python's cannot."""

    def __init__(self, port: int, *words: str) -> None:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.said = b""

    def wait_for(self, text: bytes) -> None:
        """Until it has printed this."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + WAIT_S
        while text not in self.said:
            readable, _, _ = select.select([self.process.stdout], [], [], 0.5)
            if readable:
                piece = os.read(self.process.stdout.fileno(), 65_536)
                assert piece, self.said
                self.said += piece
            assert time.monotonic() < deadline, self.said

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def __enter__(self) -> OpenSsl:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()


PAGE = b"GET /_console/ HTTP/1.1\r\nhost: localhost\r\n\r\n"
HANDSHAKE_DONE = b"Verify return code"


@needs_openssl
def test_a_client_that_wants_small_records(broker: TlsBroker) -> None:
    with OpenSsl(broker.port, "-maxfraglen", "512") as client:
        client.wait_for(HANDSHAKE_DONE)
        client.say(PAGE)
        client.wait_for(b"</html>")


@needs_openssl
def test_a_client_that_changes_its_keys(broker: TlsBroker) -> None:
    with OpenSsl(broker.port, "-tls1_3") as client:
        client.wait_for(HANDSHAKE_DONE)
        for _ in range(3):
            client.said = b""
            client.say(b"K\n")  # and asks for new ones of the broker
            client.wait_for(b"KEYUPDATE\n")
            client.say(PAGE)
            client.wait_for(b"</html>")


@needs_openssl
def test_renegotiation_is_refused(broker: TlsBroker) -> None:
    with OpenSsl(broker.port, "-tls1_2") as client:
        client.wait_for(HANDSHAKE_DONE)
        client.say(b"R\n")
        client.wait_for(b"no renegotiation")


# -- client certificates ----------------------------------------------------------------------


def test_client_certificates_are_asked_for(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    options = (
        "--set",
        "tls_client_auth=required",
        "--set",
        f"tls_client_ca_file={files.authority}",
    )
    with TlsBroker(tmp_path, *options) as broker:
        assert broker.secure(client_context(principal="alice")).get("/?cmd=ping").status == 200
        for context in (client_context(), client_context(principal="a", signed_by="strangers")):
            with pytest.raises(OSError, match=r"(?i)alert|reset"):
                broker.secure(context).get("/?cmd=ping")
        assert broker.plain().get("/?cmd=ping").status == 200
        log = broker.log()
        assert re.search(r"TLS failed peer=127.0.0.1:\d+ why=peer did not return a certif", log)
        assert "Traceback" not in log


def test_a_principal_is_granted_what_the_table_says(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    table = tmp_path / "tokens.toml"
    table.write_text(
        '[[token]]\nname = "a"\nprincipal = "alice"\noperations = ["produce"]\n'
        'topics = { A = ["*"] }\n'
        '[[token]]\nname = "root"\nprincipal = "root"\noperations = ["admin"]\n'
    )
    table.chmod(0o600)
    settings = ("tls_client_auth=optional", f"tls_client_ca_file={files.authority}")
    options = [word for setting in settings for word in ("--set", setting)]
    with TlsBroker(tmp_path, *options, "--token-file", str(table)) as broker:
        root = broker.secure(client_context(principal="root"))
        for topic in "AB":
            assert root.get(f"/{topic}?cmd=declare").status == 200
        alice = broker.secure(client_context(principal="alice"))
        assert alice.get("/A", body=b"x").status == 200
        assert alice.get("/B", body=b"x").status == 403
        assert alice.get("/A?cmd=remove").status == 403
        for nobody in (broker.secure(), broker.secure(client_context(principal="eve"))):
            assert nobody.get("/A", body=b"x").status == 403
        assert broker.plain().get("/A", body=b"x").status == 403


# -- rotation -------------------------------------------------------------------------------


def shown(broker: TlsBroker) -> bytes:
    """The certificate that a new connection sees."""
    wire = broker.secure()
    assert isinstance(wire.sock, ssl.SSLSocket)
    assert wire.get("/?cmd=ping").status == 200
    certificate = wire.sock.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_certificates_are_changed_while_connections_live(tmp_path: Path) -> None:
    with TlsBroker(tmp_path) as broker:
        live = broker.secure()
        assert live.get("/T?cmd=declare").status == 200
        first = shown(broker)
        write_files(tmp_path)
        assert shown(broker) == first
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for("reloaded")
        second = shown(broker)
        assert second != first
        assert live.get("/T?cmd=query").status == 200

        # A certificate whose key is not there yet: the old one stays.
        key = broker.files.key.read_bytes()
        write_files(tmp_path)
        broker.files.key.write_bytes(key)
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for("does not belong to the certificate")
        assert shown(broker) == second

        broker.files.certificate.unlink()
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for(f"cannot read {broker.files.certificate}")
        assert shown(broker) == second
        assert live.get("/T?cmd=query").status == 200
        assert "Traceback" not in broker.log()


def test_sighup_ends_no_broker_that_has_nothing_to_reload(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.process.send_signal(signal.SIGHUP)
        assert broker.get("/T?cmd=declare").status == 200
        assert broker.stop() == 0


# -- Unix sockets ---------------------------------------------------------------------------


def test_a_unix_socket_is_for_its_owner(broker: TlsBroker) -> None:
    assert stat.filemode(broker.socket_path.stat().st_mode) == "srw-------"


def test_its_permissions_may_be_others(tmp_path: Path) -> None:
    path = tmp_path / "zbus.sock"
    listen = ("--listen", f"unix:{path}", "--listen", PLAIN)
    with BrokerProcess(tmp_path / "data", *listen, "--set", "unix_socket_mode=0666"):
        assert stat.filemode(path.stat().st_mode) == "srw-rw-rw-"


def test_the_socket_of_a_broker_that_died_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "zbus.sock"
    listen = ("--listen", f"unix:{path}", "--listen", PLAIN)
    with BrokerProcess(tmp_path / "data", *listen) as broker:
        broker.kill()
    assert path.exists()
    with BrokerProcess(tmp_path / "data", *listen) as broker:
        other = run_serve("--listen", f"unix:{path}", "--data-dir", str(tmp_path / "other"))
        assert other.returncode == 3
        assert other.stderr == f"zbus: cannot listen on {path}: a program listens there already\n"
        assert path.exists()
        assert broker.stop() == 0
    assert not path.exists()


# -- what stands in the way of a start ----------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("files"))


def refused(tmp_path: Path, *options: str) -> str:
    """Why a broker does not start."""
    ended = run_serve("--data-dir", str(tmp_path / "data"), *options)
    assert ended.returncode == 3, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("zbus: ")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
    return ended.stderr


def test_bad_files_are_named(tmp_path: Path, files: Files) -> None:
    listen = ("--listen", TLS)
    cert, key = ("--tls-cert-file", str(files.certificate)), ("--tls-key-file", str(files.key))
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    other = write_files(tmp_path)
    assert "https, but tls_cert_file is not set" in refused(tmp_path, *listen)
    assert "no address of listen is https" in refused(tmp_path, "--port", "0", *cert)
    said = refused(tmp_path, *listen, "--tls-cert-file", "/nowhere.pem", *key)
    assert "tls_cert_file: cannot read /nowhere.pem: No such file or directory" in said
    said = refused(tmp_path, *listen, *cert, "--tls-key-file", str(empty))
    assert f"tls_key_file: there is no private key in {empty}" in said
    assert "there is no private key" in refused(tmp_path, *listen, *cert)
    assert "does not belong" in refused(tmp_path, *listen, *cert, "--tls-key-file", str(other.key))
    assert str(broken) in refused(tmp_path, *listen, "--tls-cert-file", str(broken), *key)
    said = refused(tmp_path, *listen, *cert, *key, "--set", "tls_client_auth=required")
    assert "tls_client_ca_file goes with tls_client_auth" in said
    said = refused(tmp_path, *listen, *cert, *key, "--set", f"tls_client_ca_file={empty}")
    assert "tls_client_ca_file goes with tls_client_auth" in said
    auth = ("--set", "tls_client_auth=optional", "--set", f"tls_client_ca_file={empty}")
    assert "there is no certificate in" in refused(tmp_path, *listen, *cert, *key, *auth)


def test_bad_addresses_are_named(tmp_path: Path) -> None:
    assert "invalid address 'localhost:1': expected http://" in refused(
        tmp_path, "--listen", "localhost:1"
    )
    long = tmp_path / ("x" * 110)
    assert f"cannot listen on {long}" in refused(tmp_path, "--listen", f"unix:{long}")
    file = tmp_path / "file"
    file.write_text("precious")
    assert "it is not a socket" in refused(tmp_path, "--listen", f"unix:{file}")
    assert file.read_text() == "precious"
    missing = tmp_path / "missing" / "zbus.sock"
    assert "No such file or directory" in refused(tmp_path, "--listen", f"unix:{missing}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = tmp_path / "zbus.sock"
        said = refused(tmp_path, "--listen", f"unix:{path}", "--listen", f"http://127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said
    assert not path.exists()


def test_an_address_with_too_many_connections_is_cut_off(tmp_path: Path) -> None:
    with TlsBroker(tmp_path, "--set", "connections_per_address_max=2") as broker:
        wires = [broker.secure() for _ in range(2)]
        assert [wire.get("/?cmd=ping").status for wire in wires] == [200] * 2
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            broker.secure()
