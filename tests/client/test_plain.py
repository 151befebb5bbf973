"""Servers without the module (module=none): SET NX PX and scripts. What holds everywhere, and what
is different there."""

import pytest

from support.cluster import Cluster
from support.every_deployment import Deployment, EveryDeployment
from support.fake_server import CUT, SILENCE, resp
from support.libdlock import (NO_MODULE, SERVER_WAIT, SHARED, Background, Client, State,
                              Status)
from support.sentinel import SentinelSet, url_of
from support.server import Server, destroy_all, running, wait_until

IO_MS = 5000
SHORT_MS = 100


@pytest.fixture(scope="module")
def shared_servers():
    servers = [Server(module=None) for _ in range(3)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        destroy_all(servers)


@pytest.fixture
def servers(shared_servers):
    """Three, empty, that know no script."""
    for server in shared_servers:
        server.observer.flushall()
        server.observer.script_flush()
    return shared_servers


@pytest.fixture
def plain(connect):
    return lambda to, **options: connect(to, **{"module": NO_MODULE, **options})


@pytest.fixture
def server(servers):
    return servers[0]


@pytest.fixture
def client(server):
    return server.observer


class TestOnePlainServer(EveryDeployment):
    @pytest.fixture
    def deployment(self, servers):
        return Deployment(f"redis://127.0.0.1:{servers[0].port}", ["lock"],
                          lambda name: servers[:1], module=NO_MODULE)


class TestPlainRedlock(EveryDeployment):
    @pytest.fixture
    def deployment(self, servers):
        return Deployment([f"redis://127.0.0.1:{server.port}" for server in servers], ["lock"],
                          lambda name: servers, module=NO_MODULE)


@pytest.fixture(scope="module")
def shared_cluster():
    with running(Cluster(module=None)) as cluster:
        yield cluster


class TestPlainCluster(EveryDeployment):
    @pytest.fixture
    def deployment(self, shared_cluster):
        for node in shared_cluster.nodes:
            node.observer.flushall()
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in shared_cluster.nodes)
        return Deployment(f"redis+cluster://{hosts}", [shared_cluster.key_on(n) for n in range(3)],
                          lambda name: [shared_cluster.owner(name)], module=NO_MODULE)


@pytest.fixture(scope="module")
def sentinels():
    with running(SentinelSet(module=None)) as sentinels:
        yield sentinels


class TestPlainSentinel(EveryDeployment):
    @pytest.fixture
    def deployment(self, sentinels):
        sentinels.servers[0].observer.flushall()
        return Deployment(url_of(*sentinels.sentinels), ["lock"],
                          lambda name: sentinels.servers[:1], replicas=2, module=NO_MODULE)


# -- commands -------------------------------------------------------------------------------------


def calls(client):
    """How often each command was called since the last time, without those of the test."""
    stats = {name[8:]: each["calls"] for name, each in client.info("commandstats").items()}
    client.config_resetstat()
    return {name: stats[name] for name in ("set", "eval", "evalsha", "get", "del") if name in stats}


def test_an_uncontended_acquire_is_one_set_and_a_release_one_script(plain, server, client):
    lock = plain(server).lock()
    assert lock.acquire() == lock.release() == Status.OK
    calls(client)
    for _ in range(3):
        assert lock.acquire() == Status.OK
    assert calls(client) == {"set": 1}
    assert lock.release() == lock.release() == lock.release() == Status.OK
    assert calls(client) == {"evalsha": 1, "get": 1, "del": 1}


def test_a_server_gets_the_text_of_a_script_once(plain, server, client):
    lock = plain(server).lock()
    client.config_resetstat()
    for _ in range(3):
        assert lock.acquire() == lock.extend() == lock.extend() == lock.release() == Status.OK
    seen = calls(client)
    assert seen["eval"] == 2, "extend and release"
    assert seen["evalsha"] == 9
    client.script_flush()
    assert lock.acquire() == lock.extend() == lock.release() == Status.OK
    assert not client.exists("lock")


def test_a_lock_is_a_string_with_a_ttl(plain, server, client):
    lock = plain(server).hold(lease_ms=60_000)
    assert client.get("lock") == lock.token
    assert 50_000 < client.pttl("lock") <= 60_000
    assert lock.fence == 0


def test_an_extension_never_makes_the_lease_shorter(plain, server, client):
    lock = plain(server).hold(lease_ms=60_000)
    assert lock.extend(1000) == Status.OK
    assert client.pttl("lock") > 50_000
    client.persist("lock")
    assert lock.extend(1000) == Status.OK
    assert client.pttl("lock") == -1


def test_a_late_release_does_no_harm(plain, server, client):
    lock = plain(server).hold()
    client.set("lock", "somebody")
    assert lock.extend() == Status.LOST
    assert lock.release() == Status.LOST
    assert client.get("lock") == b"somebody"


# -- beside others --------------------------------------------------------------------------------


def test_other_clients_with_set_nx_px_take_turns_with_it(plain, server, client):
    dlock = plain(server)
    lock = dlock.lock()
    assert client.set("lock", "somebody", nx=True, px=60_000)
    assert lock.acquire() == Status.BUSY
    waiting = Background(lock.acquire, 60_000)
    client.delete("lock")
    assert waiting.result() == Status.OK
    assert not client.set("lock", "somebody", nx=True, px=60_000)
    assert lock.release() == Status.OK
    assert client.set("lock", "somebody", nx=True, px=60_000)


def test_clients_of_the_module_take_turns_with_it_on_the_same_keys(plain, connect, start_server):
    server = start_server()
    with_module, without = connect(server).lock(), plain(server).lock()
    for one, other in ((with_module, without), (without, with_module)):
        assert one.acquire() == Status.OK
        assert other.acquire() == Status.BUSY
        waiting = Background(other.acquire, 60_000)
        assert one.extend() == Status.OK
        assert one.release() == Status.OK
        assert waiting.result() == Status.OK
        assert one.acquire() == Status.BUSY
        assert other.release() == Status.OK


def test_a_lock_that_a_client_of_the_module_took_over_is_lost(plain, connect, start_server):
    server = start_server()
    with_module, without = connect(server).lock(), plain(server).lock()
    assert without.acquire() == Status.OK
    server.observer.delete("lock")
    assert with_module.acquire() == Status.OK
    assert without.extend() == Status.LOST
    assert without.release() == Status.LOST
    assert with_module.release() == Status.OK


# -- lost replies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "silence"])
def test_an_acquire_whose_reply_was_lost_is_held_with_a_whole_lease(plain, server, client,
                                                                    start_proxy, how):
    """The second one finds its own token, and does not wait for the lease of the first."""
    proxy = start_proxy(server)
    proxy.mute(b"SET")
    lock = plain(proxy, io_timeout_ms=1000).lock(lease_ms=60_000)
    waiting = Background(lock.acquire, 20_000)
    wait_until(lambda: client.get("lock"), "the grant")
    client.pexpire("lock", 30_000)
    proxy.mute_no_more()
    if how == "cut":
        proxy.cut_near()
    assert waiting.result() == Status.OK
    assert client.get("lock") == lock.token
    assert client.pttl("lock") >= lock.remaining_ms > 40_000
    assert lock.release() in (Status.OK, Status.IN_DOUBT)  # the reply may be late


@pytest.mark.parametrize("action", [SILENCE, CUT], ids=["silence", "cut"])
def test_an_acquire_in_doubt_is_withdrawn(plain, fake_server, action):
    answers = {b"SET": action}
    server = fake_server(lambda request: answers.get(request[0], resp(1)))
    lock = plain(server, io_timeout_ms=SHORT_MS).lock()
    assert lock.acquire() == Status.IN_DOUBT
    wait_until(lambda: any(words[0] in (b"EVAL", b"EVALSHA") and words[3] == b"lock"
                           for words in server.requests), "the release")


def test_a_server_that_knows_no_script_at_all_is_no_endless_loop(plain, fake_server):
    def answer(request):
        if request[0] in (b"EVAL", b"EVALSHA"):
            return resp(Exception("NOSCRIPT No matching script. Please use EVAL."))
        return b"+OK\r\n"

    server = fake_server(answer)
    lock = plain(server).hold()
    assert lock.extend() == Status.PROTOCOL
    assert [words[0] for words in server.requests].count(b"EVALSHA") == 1
    assert [words[0] for words in server.requests].count(b"EVAL") == 1


# -- what is not there ----------------------------------------------------------------------------


def refusal(dlock, **options):
    with pytest.raises(ValueError) as refused:
        dlock.lock(**options)
    assert refused.value.args[0] == Status.INVALID
    return str(refused.value)


def test_what_only_the_module_has_is_refused_in_words(plain, server):
    dlock = plain(server)
    assert "module" in refusal(dlock, session=True)
    assert "module" in refusal(dlock, mode=SHARED)
    with pytest.raises(ValueError, match="queue"):
        plain(server, wait_mode=SERVER_WAIT)
    lock = dlock.hold()
    assert lock.guarded("PING") == (Status.INVALID, None)
    assert "module" in lock.error
    assert lock.state == State.HELD


def test_a_value_that_is_no_module_is_refused(server):
    with pytest.raises(ValueError, match="module"):
        Client(f"redis://127.0.0.1:{server.port}", module=7)


def test_a_lock_can_be_looked_at_by_name(plain, server, client):
    dlock = plain(server)
    assert dlock.inspect() == []
    lock = dlock.hold()
    (name, token, fence, _, holders), = dlock.inspect()
    assert (name, token, fence, holders) == (b"lock", lock.token, 0, 1)


def test_ping_is_fine_with_a_plain_server(plain, connect, server):
    assert plain(server).ping() == Status.OK
    assert connect(server).ping() != Status.OK
