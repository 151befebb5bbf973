"""Fixtures of the client's tests: clients and fake servers that end with the test."""

import os
import signal

import pytest

from support.fake_server import FakeServer
from support.libdlock import Client
from support.proxy import Proxy
from support.server import free_port
from support.tls import Authority, tls_options

PATIENCE_MS = 20_000  # a server that is alive answers, however slow the machine is


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
def start_proxy(start_server):
    """start_proxy(server, gates=None): see support/proxy.py."""
    proxies = []

    def start(server, gates=None):
        proxies.append(Proxy(server.port, gates))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """The CA that the servers and clients of these tests trust."""
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="session")
def certificate(authority):
    """Of a server on this machine."""
    return authority.issue("server", "IP:127.0.0.1,DNS:localhost")


@pytest.fixture
def start_tls_server(start_server, authority, certificate):
    """start_tls_server(*options, certificate=): its url is that of its TLS port; its port is
    without TLS, for those who look."""

    def start(*options, certificate=certificate):
        port = free_port()
        server = start_server(*tls_options(authority, certificate, port, *options))
        server.tls_port = port
        server.url = f"rediss://127.0.0.1:{port}"
        return server

    return start


@pytest.fixture
def tls_server(start_tls_server):
    return start_tls_server()


@pytest.fixture
def connect(start_server, fake_server, start_proxy):
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
    for client in reversed(clients):
        client.free()


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
def dlock(connect, server):
    """A client of libdlock at a server with the module."""
    return connect(server)
