"""Fixtures: every test gets servers of its own and leaves none behind."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
pytest.register_assert_rewrite("support.every_deployment")
pytest_plugins = ["support.fixtures"]

from support import figures  # noqa: E402
from support.commands import Lock  # noqa: E402
from support.server import Server, wait_until, with_all  # noqa: E402
from support.stream import ReplicationStream  # noqa: E402


@pytest.fixture
def start_server():
    """start_server(*options, **more) starts a server that ends with the test."""
    servers = []

    def start(*options, **more):
        server = Server(*options, **more)
        servers.append(server)
        return server.start()

    yield start
    with_all(reversed(servers), Server.destroy)


@pytest.fixture
def server(start_server):
    return start_server()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def lock(client):
    return Lock(client)


@pytest.fixture
def start_replica(start_server):
    """start_replica(master) is in sync when it is returned."""

    def start(master, *options):
        replica = start_server("--replicaof", "127.0.0.1", master.port, *options)
        client = replica.client()
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "a sync")
        return replica

    return start


@pytest.fixture
def start_follower(start_replica):
    """start_follower(master): a replica that hears of each write at once. One that is in sync may
    have to wait a second for the first."""

    def start(master, *options):
        replica = start_replica(master, *options)
        client = master.observer
        client.set("begin", 1)
        client.delete("begin")
        assert client.wait(1, 20_000) == 1
        return replica

    return start


@pytest.fixture
def stream(server):
    stream = ReplicationStream(server)
    yield stream
    stream.close()


def pytest_collection_modifyitems(config, items):
    """Our marks have a reason. limit(seconds, reason) is pytest-timeout's mark and that. Every
    limit is that of a test by itself: run-tests, which runs many at a time, tells how many times
    slower that may be."""
    times = int(os.environ.get("DLOCK_TEST_SLOWER", 1))
    for item in items:
        seconds = float(config.getini("timeout")) if times > 1 else None
        for mark in item.iter_markers():
            if mark.name in ("alone", "long", "limit"):
                reason = mark.args[-1] if mark.args else None
                assert isinstance(reason, str), f"{item.nodeid}: {mark.name} has no reason"
            if mark.name == "limit":
                seconds = mark.args[0]
        if seconds is not None:
            item.add_marker(pytest.mark.timeout(seconds * times))


def pytest_terminal_summary(terminalreporter):
    figures.write(terminalreporter.write_line)
