"""Fixtures of the client's and of the tool's tests: servers that are false, secure or several."""

import pytest

from support.cluster import Cluster
from support.fake_server import FakeServer
from support.proxy import Proxy
from support.sentinel import SentinelSet
from support.server import free_port, running, with_all
from support.shared import SharedServer
from support.tls import Authority, tls_options


SERVERS = 5


@pytest.fixture(scope="session")
def shared_servers():
    shared = [SharedServer() for _ in range(SERVERS)]
    yield shared
    for each in shared:
        each.destroy()


@pytest.fixture
def lend(shared_servers):
    """lend(count): so many servers that are as good as new."""
    lent = []

    def lend_some(count):
        lent.extend(each.take() for each in shared_servers[len(lent):count])
        return lent[:count]

    lend_some.lent = lent
    yield lend_some
    with_all(shared_servers[:len(lent)], SharedServer.give_back)


@pytest.fixture
def obstacles(start_server):
    """Fake servers and proxies: they relent before the clients end, and are closed after that."""
    made = []
    yield made
    for each in made:
        each.close()


@pytest.fixture
def relieve(obstacles, lend):
    """relieve(): obstacles relent and servers are up again, so that clients end in peace."""
    def relieve_all():
        for each in obstacles:
            each.relent()
        for server in lend.lent:
            if server.process is None:
                server.start(server.port)
    return relieve_all


@pytest.fixture
def fake_server(obstacles):
    """fake_server(answer): see support/fake_server.py."""
    def make(answer):
        obstacles.append(FakeServer(answer))
        return obstacles[-1]
    return make


@pytest.fixture
def start_proxy(obstacles):
    """start_proxy(server): see support/proxy.py."""
    def start(server):
        obstacles.append(Proxy(server.port))
        return obstacles[-1]
    return start


@pytest.fixture(scope="session")
def shared_cluster():
    with running(Cluster()) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Three masters, the same for all tests; each finds it as it was at the start."""
    yield shared_cluster
    shared_cluster.restore()


@pytest.fixture(scope="session")
def shared_sentinels():
    with running(SentinelSet(has_clock=True)) as sentinels:
        yield sentinels


@pytest.fixture
def sentinels(shared_sentinels):
    """A master with two replicas and three sentinels, the same for all tests; each finds them as
    they were at the start, but for the roles."""
    shared_sentinels.restore()
    return shared_sentinels


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
