"""Fixtures of the module's tests. Every server has clocks that the test can set."""

import pytest

from support.cluster import Cluster
from support.commands import Lock, Locks
from support.server import Server, destroy_all, running
from support.session import Session
from support.shared import SharedServer
from support.waiting import end_sessions, flush_until_quiet


QUICK = ("--hz", 100, "--repl-diskless-sync", "no")  # a replica is in sync at once


@pytest.fixture(scope="session")
def shared_server():
    shared = SharedServer(*QUICK)
    yield shared
    shared.destroy()


@pytest.fixture
def server(shared_server):
    """Shared with other tests, and as good as new."""
    yield shared_server.take()
    shared_server.give_back()


@pytest.fixture
def clock(server):
    return server.clock


@pytest.fixture
def start_server():
    """start_server(*options, **more) starts a server that ends with the test."""
    servers = []

    def start(*options, **more):
        server = Server(*QUICK, *options, has_clock=True, **more)
        servers.append(server)
        server.start()
        return server

    yield start
    destroy_all(reversed(servers))


@pytest.fixture
def cluster(shared_cluster):
    """Three masters, the same for all tests: empty and quiet. Slots may have other owners."""
    yield shared_cluster
    shared_cluster.end_moves()
    for node in shared_cluster.nodes:
        end_sessions(node)
        flush_until_quiet(node.observer)


@pytest.fixture(scope="session")
def lonely():
    """A cluster of one node."""
    with running(Cluster(masters=1)) as cluster:
        yield cluster


@pytest.fixture
def session(server):
    return Session(server)


@pytest.fixture
def other(server):
    return Session(server)


@pytest.fixture
def both(client):
    """The locks "a" and "b" together."""
    return Locks(client, "a", "b")


@pytest.fixture
def at(client):
    """at("a"): that lock."""
    return lambda key: Lock(client, key)


class Events:
    """The keyspace events of the module on one key, from now on."""

    def __init__(self, client, key):
        client.config_set("notify-keyspace-events", "Kd")
        self.client, self.channel = client, f"__keyspace@0__:{key}"
        self.listener = client.pubsub(ignore_subscribe_messages=True)
        self.listener.subscribe(self.channel)
        self.listener.get_message(timeout=50)  # the subscription itself
        self.take()

    def take(self):
        """All that have come, without the prefix."""
        self.client.publish(self.channel, "the end")
        seen = []
        while not seen or seen[-1] != "the end":
            message = self.listener.get_message(timeout=50)
            seen += [message["data"].decode().removeprefix("dlock.")] if message else []
        return seen[:-1]


@pytest.fixture
def events(client):
    """events.take(): the keyspace events of "lock" since the last time."""
    return Events(client, "lock")
