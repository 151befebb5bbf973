"""What holds everywhere, at one server, with TLS, and at several. Sentinel and Cluster have it in
files of their own, where their servers are; here is that they speak TLS, too."""

import subprocess

import pytest

from support.cluster import Cluster, slot_of
from support.commands import plain
from support.every_deployment import Deployment, EveryDeployment
from support.libdlock import State, Status
from support.sentinel import NAME, SentinelSet, url_of
from support.server import ROOT, Server, destroy_all, free_port, running, wait_until
from support.tls import tls_options


@pytest.fixture(scope="module")
def servers(authority, certificate):
    """Each with TLS too, at its tls_port. Tests set their clocks, and those of several servers that
    decide together must agree: so each kind of deployment has its own."""
    servers = []
    try:
        for _ in range(5):
            port = free_port()
            servers.append(Server(*tls_options(authority, certificate, port), has_clock=True))
            servers[-1].tls_port = port
            servers[-1].start()
        yield servers
    finally:
        destroy_all(servers)


@pytest.fixture(autouse=True)
def empty(servers):
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
        urls = [f"redis://127.0.0.1:{server.port}" for server in servers[2:4]]
        return Deployment([*urls, f"rediss://127.0.0.1:{servers[4].tls_port}"], ["lock"],
                          lambda name: servers[2:], tls_ca_file=authority.ca)


# -- TLS with a list of hosts ---------------------------------------------------------------------


@pytest.fixture
def tls(authority, certificate):
    return lambda port: tls_options(authority, certificate, port)


@pytest.fixture
def tls_cluster(tls):
    with running(Cluster(tls=tls)) as cluster:
        yield cluster


@pytest.fixture
def tls_sentinels(tls):
    with running(SentinelSet(tls=tls)) as sentinels:
        yield sentinels


def keep_and_give_back(dlock, name, **options):
    lock = dlock.hold(name, lease_ms=60_000, renew_every_ms=50, **options, wait_ms=20_000)
    dlock.wait_for_renewals(2)
    assert lock.extend() == Status.OK, lock.error
    assert lock.state == State.HELD
    assert lock.release() == Status.OK, lock.error


def test_a_cluster_with_tls(tls_cluster, connect, authority):
    dlock = connect(f"rediss+cluster://127.0.0.1:{tls_cluster.nodes[0].tls_port}",
                    tls_ca_file=authority.ca)
    for number in range(3):
        keep_and_give_back(dlock, tls_cluster.key_on(number), session=number == 1)
    moved = tls_cluster.key_on(0)
    tls_cluster.move(slot_of(moved), 1)
    keep_and_give_back(dlock, moved)


def test_sentinels_without_tls_in_front_of_masters_with_tls(tls_sentinels, connect, authority):
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in tls_sentinels.sentinels)
    dlock = connect(f"rediss+sentinel://{hosts}/{NAME}?sentinel_tls=no", tls_ca_file=authority.ca)
    keep_and_give_back(dlock, "lock")


def has_cluster_databases():
    version = subprocess.run([ROOT / "scripts/redis-server", "--version"], capture_output=True,
                             text=True, check=True).stdout
    return "alkey" in version and int(version.partition("v=")[2].partition(".")[0]) >= 9


def test_a_database_of_a_cluster(connect):
    """Only Valkey 9 has them; elsewhere the reason is told."""
    databases = ["--cluster-databases", 4] if has_cluster_databases() else []
    with running(Server("--cluster-enabled", "yes", "--cluster-port", free_port(),
                        *databases)) as node:
        plain(node.observer, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in plain(node.observer, "CLUSTER", "INFO"), "it")
        dlock = connect(f"redis+cluster://127.0.0.1:{node.port}/3")
        if has_cluster_databases():
            keep_and_give_back(dlock, "lock")
            dlock.hold("kept")
            assert "db3" in node.observer.info("keyspace")
        else:
            lock = dlock.lock()
            assert lock.acquire() == Status.INVALID and "SELECT is not allowed" in lock.error


def test_sentinels_with_tls(tls_sentinels, connect, authority):
    url = url_of(*tls_sentinels.sentinels, scheme="rediss+sentinel")
    dlock = connect(url, tls_ca_file=authority.ca)
    keep_and_give_back(dlock, "lock", min_replicas=1)
    keep_and_give_back(dlock, "session", session=True)
    lock = dlock.hold("kept", lease_ms=60_000, renew_every_ms=100, min_replicas=1, wait_ms=20_000)
    old = tls_sentinels.master
    old.kill()
    tls_sentinels.wait_for_new_master(old)
    dlock.wait_for_renewals(3)
    assert lock.release() == Status.OK
