"""Fixtures of the client's tests: clients that end with the test."""

import os
import signal

import pytest

from support.libdlock import Client, Told

PATIENCE_MS = 20_000  # a server that is alive answers, however slow the machine is


@pytest.fixture
def server(lend):
    return lend(1)[0]


@pytest.fixture
def servers(lend):
    """Independent ones."""
    return lend(5)


@pytest.fixture
def connect(relieve):
    """connect(url or server or a list of them, **options) is a client of libdlock. Unless told
    otherwise it waits so long for an answer that only a server that never answers is late. It ends
    before the servers do: what it holds is released as long as somebody is there."""
    clients = []

    def url_of(to):
        return to if isinstance(to, str) else getattr(to, "url", f"redis://127.0.0.1:{to.port}")

    def make(to, **options):
        url = [url_of(each) for each in to] if isinstance(to, list) else url_of(to)
        patient = {"connect_timeout_ms": PATIENCE_MS, "io_timeout_ms": PATIENCE_MS}
        clients.append(Client(url, **{**patient, **options}))
        return clients[-1]

    yield make
    relieve()
    for client in reversed(clients):
        client.free()


@pytest.fixture
def told():
    """What an on_event is told."""
    return Told()


@pytest.fixture
def silent(connect):
    """silent(server, ...): the server is there and says nothing, until SIGCONT or the end of the
    test, before the clients go."""
    stopped = []

    def stop(*servers):
        for server in servers:
            os.kill(server.pid, signal.SIGSTOP)
            stopped.append(server)

    yield stop
    for server in stopped:
        if server.process is not None:
            os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def in_cluster(cluster, connect):
    """A client that knows all nodes."""
    return connect(cluster.url)


@pytest.fixture
def dlock(connect, server):
    """A client of libdlock at a server with the module."""
    return connect(server)
