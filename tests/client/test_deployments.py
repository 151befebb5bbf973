"""What holds everywhere, at one server, with TLS, and at several. Sentinel and Cluster have it in
files of their own, where their servers are."""

import pytest

from support.every_deployment import Deployment, EveryDeployment
from support.server import Server, destroy_all, free_port
from support.tls import tls_options


@pytest.fixture(scope="module")
def servers(authority, certificate):
    """Three; each with TLS too, at its tls_port."""
    servers = []
    try:
        for _ in range(3):
            port = free_port()
            servers.append(Server(*tls_options(authority, certificate, port)))
            servers[-1].tls_port = port
            servers[-1].start()
        yield servers
    finally:
        destroy_all(servers)


@pytest.fixture(autouse=True)
def empty(servers, connect):
    for server in servers:
        server.observer.flushall()


class TestOneServer(EveryDeployment):
    @pytest.fixture
    def deployment(self, servers):
        return Deployment(f"redis://127.0.0.1:{servers[0].port}", ["lock"],
                          lambda name: servers[:1])


class TestTLS(EveryDeployment):
    @pytest.fixture
    def deployment(self, servers, authority):
        return Deployment(f"rediss://127.0.0.1:{servers[1].tls_port}", ["lock"],
                          lambda name: servers[1:2], tls_ca_file=authority.ca)


class TestRedlock(EveryDeployment):
    @pytest.fixture
    def deployment(self, servers, authority):
        urls = [f"redis://127.0.0.1:{server.port}" for server in servers[:2]]
        return Deployment([*urls, f"rediss://127.0.0.1:{servers[2].tls_port}"], ["lock"],
                          lambda name: servers, tls_ca_file=authority.ca)
