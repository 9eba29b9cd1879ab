"""What a spare process opens when it has claimed a shard."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from zbus.server.loop.sockets import Address, Listening
from zbus.workers.cluster.member import Doors
from zbus.workers.seats import Shared


def test_clients_come_to_a_new_owner_when_it_listens(tmp_path: Path) -> None:
    """Until it has read its shard they come to others: in its socket they would wait for it."""
    edge = Listening(Address("tcp", "127.0.0.1", 0), shared=True)
    where = edge.address.host, edge.address.port
    shared = Shared([edge.address], [str(tmp_path / "asked")], [str(tmp_path / "given")], b"")
    seat = Doors(shared, [edge.sock], None).open(0)
    edge.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)
    Listening.inherited(edge.address, seat.doors[0]).listen()
    socket.create_connection(where).close()
    for sock in (*seat.doors, seat.relay, seat.taker):
        assert sock is not None
        sock.close()
