"""Fixtures of the client's tests: clients and fake servers that end with the test."""

import pytest

from support.fake_server import FakeServer
from support.libdlock import Client


@pytest.fixture
def connect():
    """connect(url or server or a list of them, **options) is a client of libdlock."""
    clients = []

    def url_of(to):
        return to if isinstance(to, str) else getattr(to, "url", f"redis://127.0.0.1:{to.port}")

    def make(to, **options):
        urls = [url_of(each) for each in to] if isinstance(to, list) else url_of(to)
        clients.append(Client(urls, **options))
        return clients[-1]

    yield make
    for client in reversed(clients):
        client.free()


@pytest.fixture
def fake_server():
    """fake_server(answer): see support/fake_server.py."""
    servers = []

    def make(answer):
        servers.append(FakeServer(answer))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def dlock(connect, server):
    """A client of libdlock at a server with the module."""
    return connect(server)
