"""What a Lock of client/python does when connections break, servers hang, restart or forget."""

import socket
import struct
import threading
import time

import pytest
import redis.asyncio.sentinel
import redis.sentinel

import dlock
from support.acl import set_user
from support.commands import fence_at, served, stats
from support.sentinel import NAME
from support.server import stopped, wait_until
from support.waiting import wait_for_waiters

PATIENCE_S = 20
QUICK_S = 2.5  # a server may stand still for two seconds, and replies in time all the same
QUICK = {"io_timeout": QUICK_S, "session_timeout": 10.0}
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def proxy(start_proxy, server):
    return start_proxy(server)


def wait_until_open(client):
    """The session goes on over another connection."""
    [server] = client._servers.values()
    wait_until(lambda: server.session.is_open, "the session")


def test_a_server_that_is_away_is_unreachable(connect, start_server):
    server = start_server()
    client = connect(server)
    with client.lock("lock", lease=60):
        pass
    server.kill()
    for options in {}, {"lease": 60}, {"wait": 0.1}:
        with pytest.raises(dlock.Unreachable):
            client.lock("lock", **options).acquire()


def test_a_server_that_hangs_is_given_up(connect, server):
    client = connect(server, io_timeout=QUICK_S)
    with client.lock("other", lease=60), stopped(server):
        with pytest.raises(dlock.InDoubt):
            client.lock("lock", lease=60).acquire()
        with pytest.raises(dlock.Unreachable):
            client.lock("lock").acquire()
        with pytest.raises(dlock.Unreachable):
            client.lock("lock", wait=1.5).acquire()


def test_a_wait_begins_again_when_the_server_is_back(connect, start_server, begin):
    server = start_server()
    client = connect(server)
    server.kill()
    wanted = begin(client.lock("lock").acquire, wait=60)
    server.start(server.port)
    assert wanted.result() == fence_at(server.observer)


def test_a_broken_connection_costs_nothing(connect, proxy, server, begin):
    client = connect(proxy)
    kept, waiting = client.lock("kept"), client.lock("lock", wait=60)
    kept.acquire()
    server.observer.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 600_000)
    wanted = begin(waiting.acquire)
    wait_for_waiters(server.observer, 1)
    sent = served(server.observer, "acquire")
    for _ in range(3):
        count = proxy.count
        proxy.cut()
        wait_until(lambda: proxy.count > count, "another connection")
        wait_until_open(client)
    server.observer.execute_command("DLOCK.RELEASE", "lock", "me")
    assert wanted.result() == fence_at(server.observer)
    assert kept.held and not kept.lost.is_set()
    assert served(server.observer, "acquire") == sent, "the place in the queue was kept"


def test_an_event_whose_reply_was_lost_comes_again(connect, proxy, server, begin):
    client = connect(proxy, **QUICK)
    server.observer.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 600_000)
    wanted = begin(client.lock("lock", wait=60).acquire)
    wait_for_waiters(server.observer, 1)
    proxy.hold_back()
    server.observer.execute_command("DLOCK.RELEASE", "lock", "me")
    proxy.cut()
    proxy.let_go()
    assert wanted.result() == fence_at(server.observer)


def test_a_restarted_server_leaves_a_kept_lock_to_its_holder(connect, start_server, begin):
    server = start_server(*DURABLE)
    client = connect(server)
    kept, waiting = client.lock("kept"), client.lock("kept", wait=60)
    fence = kept.acquire()
    wanted = begin(waiting.acquire)
    wait_for_waiters(server.observer, 1)
    server.crash()
    wait_until(lambda: stats(server.observer)["session_holds"] == 1, "the hold of the session")
    wait_for_waiters(server.observer, 1)
    assert fence_at(server.observer, "kept") == fence == kept.fence
    assert kept.held and not kept.lost.is_set()
    kept.release()
    assert wanted.result() > fence


def test_a_server_that_has_forgotten_a_lock_tells_a_loss(connect, start_server):
    server = start_server()
    kept = connect(server).lock("kept")
    kept.acquire()
    server.crash()
    wait_until(kept.lost.is_set, "the loss")
    wait_until(lambda: not server.observer.dbsize(), "the new grant to be given back")
    with pytest.raises(dlock.Lost):
        kept.release()


def test_a_holder_that_hears_nothing_knows_in_time_that_it_may_be_alone_no_more(connect, server):
    told = []
    kept = connect(server, session_timeout=3.0).lock("kept", on_lost=told.append)
    kept.acquire()
    with stopped(server):
        wait_until(kept.lost.is_set, "the loss")
        assert kept.remaining() == 0 and "heartbeat" in kept.why_lost
        wait_until(lambda: told, "the callback")
    wait_until(lambda: not server.observer.dbsize(), "the lock to be given back")


def test_a_loss_is_told_in_time_although_a_new_connection_waits_for_its_login(connect, proxy,
                                                                             server):
    set_user(server, ["+@all"], "~*")
    client = connect(f"redis://app:x@127.0.0.1:{proxy.port}", session_timeout=6.0, io_timeout=600)
    kept = client.lock("kept")
    kept.acquire()
    with stopped(server):
        proxy.cut()
        wait_until(kept.lost.is_set, "the loss")
    with client.lock("lock", wait=20) as held:
        assert held.held


def test_a_loss_is_told_in_time_although_a_reply_was_torn(connect, proxy, server):
    client = connect(proxy, session_timeout=3.0, io_timeout=600)
    kept = client.lock("kept")
    kept.acquire()
    proxy.tear()
    wait_until(kept.lost.is_set, "the loss")
    proxy.relent()
    with client.lock("lock", wait=20) as held:
        assert held.held


def test_a_session_that_the_server_has_ended_begins_again(connect, server):
    client = connect(server)
    lost = client.lock("lost")
    lost.acquire()
    server.observer.execute_command("DLOCK.SESSION", client._id, "END")
    wait_until(lost.lost.is_set, "the loss")
    with client.lock("lock", wait=60):
        assert stats(server.observer)["session_holds"] == 1


@pytest.mark.parametrize("lease", [None, 60])
def test_an_acquire_whose_reply_is_lost_is_in_doubt_and_given_back(connect, proxy, server, lease):
    client = connect(proxy, **QUICK)
    with client.lock("other"):
        proxy.mute(b"DLOCK.ACQUIRE")
        with pytest.raises(dlock.InDoubt):
            client.lock("lock", lease=lease).acquire()
        if lease is None:
            wait_until(lambda: fence_at(server.observer) is None, "the release")


def test_an_acquire_that_arrives_after_it_was_given_up_is_released(connect, proxy, server):
    client = connect(proxy, **QUICK)
    with client.lock("other"):
        proxy.delay(b"DLOCK.ACQUIRE")
        with pytest.raises(dlock.InDoubt):
            client.lock("lock").acquire()
        proxy.delay_no_more()
        granted = stats(server.observer)["granted"]
        proxy.deliver()
        wait_until(lambda: stats(server.observer)["granted"] > granted, "the late grant")
        wait_until(lambda: fence_at(server.observer) is None, "the release")


@pytest.mark.parametrize("lease", [None, 600])
def test_a_release_without_a_reply_goes_on_in_the_background(connect, proxy, server, lease):
    client = connect(proxy, **QUICK)
    lock = client.lock("lock", lease=lease, wait=20)
    lock.acquire()
    proxy.delay(b"DLOCK.RELEASE")
    with pytest.raises(dlock.InDoubt):
        lock.release()
    assert fence_at(server.observer) is not None
    proxy.delay_no_more()
    wait_until(lambda: fence_at(server.observer) is None, "the release")


def test_a_guarded_write_without_a_reply_is_in_doubt(connect, proxy, server):
    client = connect(proxy, io_timeout=QUICK_S)
    with client.lock("lock") as held:
        proxy.mute(b"DLOCK.GUARD")
        with pytest.raises(dlock.InDoubt):
            held.guarded("INCR", "items")
        assert held.held
    assert server.observer.get("items") == b"1", "it was sent once"


def test_a_connection_that_the_server_has_closed_is_not_used(connect, server):
    client = connect(server)
    with client.lock("lock", lease=60):
        pass
    server.observer.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with client.lock("lock", lease=60) as held:
        assert held.held


def test_a_wait_ends_on_time_although_its_server_hangs(connect, server, begin):
    client = connect(server, io_timeout=1.0)
    server.observer.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 600_000)
    wanted = begin(client.lock("lock", wait=3).acquire)
    wait_for_waiters(server.observer, 1)
    with stopped(server), pytest.raises((dlock.Timeout, dlock.Unreachable)):
        wanted.result()
    wait_for_waiters(server.observer, 0)


def test_an_address_that_leads_to_another_master_is_followed(connect, proxy, server, start_server):
    """As a name in DNS or a service of Kubernetes does, while the demoted master goes on."""
    client, new = connect(proxy), start_server()
    leased = client.lock("leased", lease=60)
    with client.lock("lock"), leased:
        pass
    server.observer.execute_command("REPLICAOF", "127.0.0.1", new.port)
    proxy.to_port = new.port
    try:
        with client.lock("lock", wait=30) as held:
            assert fence_at(new.observer) == held.fence
        leased.acquire(wait=30)
        assert fence_at(new.observer, "leased") == leased.fence
    finally:
        server.observer.execute_command("REPLICAOF", "NO", "ONE")


def switch(client, proxy, server, new):
    """The address leads to the new server. Only the session has had to connect again."""
    proxy.to_port = new.port
    for each in server.observer.client_list():
        if each["cmd"].startswith("dlock|session") or each["cmd"].startswith("dlock.session"):
            server.observer.client_kill_filter(_id=each["id"])
    wait_until(lambda: stats(new.observer)["sessions"] == 1, "the session at the new server")
    wait_until_open(client)


def test_a_lock_is_not_taken_at_a_server_that_the_session_has_left(connect, proxy, server,
                                                                  start_server):
    """Its heartbeats would go on, and nobody would hear what the old server says."""
    client, new = connect(proxy), start_server()
    with client.lock("lock"):
        pass
    switch(client, proxy, server, new)
    with client.lock("lock") as held:
        assert fence_at(new.observer) == held.fence and fence_at(server.observer) is None


def test_a_lock_is_released_where_the_session_has_it_now(connect, proxy, server, start_server):
    client, new = connect(proxy), start_server()
    new.observer.execute_command("REPLICAOF", "127.0.0.1", server.port)
    lock = client.lock("lock")
    fence = lock.acquire()
    wait_until(lambda: fence_at(new.observer) == fence, "the replica to have it")
    new.observer.execute_command("REPLICAOF", "NO", "ONE")
    switch(client, proxy, server, new)
    wait_until(lambda: stats(new.observer)["session_holds"] == 1, "the hold")
    lock.release()
    wait_until(lambda: fence_at(new.observer) is None, "the release")


@pytest.mark.parametrize("form", ["asyncio"], indirect=True)
def test_a_connection_that_was_reset_is_not_used(connect, proxy, loop):
    client = connect(proxy)
    with client.lock("lock", lease=60):
        pass
    [idle], [pair] = next(iter(client._servers.values())).free, proxy.pairs
    pair.near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair.is_kept = True
    pair.near.shutdown(socket.SHUT_RD)  # the proxy does not read it any more
    wait_until(lambda: pair.near.close() or idle._reader.exception(), "the reset")
    with client.lock("lock", lease=60) as held:
        assert held.held


def test_a_server_that_takes_no_more_clients_has_not_carried_out_the_request(connect, start_server):
    server = start_server()
    count = server.observer.info("clients")["connected_clients"]
    server.observer.config_set("maxclients", count)
    with pytest.raises(dlock.Unreachable):
        connect(server).lock("lock", lease=60).acquire()
    server.observer.config_set("maxclients", 1000)


@pytest.fixture
def resolver(monkeypatch):
    """While it is not set, a name is not resolved."""
    resolve, is_there = socket.getaddrinfo, threading.Event()

    def wait(host, *more, **options):
        if host == "name.example":
            is_there.wait(PATIENCE_S)
            host = "127.0.0.1"
        return resolve(host, *more, **options)
    monkeypatch.setattr(socket, "getaddrinfo", wait)
    yield is_there
    is_there.set()


@pytest.mark.parametrize("lease", [None, 60])
def test_a_name_that_is_not_resolved_is_not_waited_for_any_longer(connect, server, resolver, form,
                                                                 lease):
    client = connect(f"redis://name.example:{server.port}", io_timeout=0.3)
    begin, lock = time.monotonic(), client.lock("lock", lease=lease)
    for _ in range(5):
        with pytest.raises(dlock.Unreachable):
            lock.acquire()
    assert time.monotonic() - begin < PATIENCE_S / 2
    if form == "threads":
        names = [each.name for each in threading.enumerate()]
        assert names.count("dlock-connect") <= 2, "the next call waits for the same attempt"
    resolver.set()
    lock.acquire(wait=20)
    lock.release()


def test_an_open_connection_is_used_before_one_that_is_being_opened(server, resolver):
    resolver.set()
    client = dlock.Client(f"redis://name.example:{server.port}", io_timeout=QUICK_S)
    lock = client.lock("lock", lease=600)
    lock.acquire(wait=20)
    resolver.clear()
    free = client._servers[None].free
    idle = free.pop()  # in use by another thread, until the next call waits
    threading.Timer(0.1, free.append, [idle]).start()
    with pytest.raises(dlock.Unreachable):
        lock.extend()
    for _ in range(3):
        lock.extend()
    resolver.set()
    client.close()


def test_an_old_attempt_to_connect_that_fails_does_not_fail_a_later_call(server, monkeypatch):
    resolve, may_fail, names = socket.getaddrinfo, threading.Event(), []

    def fail_once(host, *more, **options):
        names.append(host)
        if len(names) == 1:
            may_fail.wait(PATIENCE_S)
            raise socket.gaierror("not now")
        return resolve("127.0.0.1", *more, **options)
    monkeypatch.setattr(socket, "getaddrinfo", fail_once)
    client = dlock.Client(f"redis://name.example:{server.port}", io_timeout=QUICK_S)
    lock = client.lock("lock", lease=600)
    with pytest.raises(dlock.Unreachable):
        lock.acquire()
    threading.Timer(0.1, may_fail.set).start()
    lock.acquire()
    assert len(names) == 2
    client.close()


def test_behind_a_sentinel_a_kept_lock_survives_a_failover(sentinels, connect, form, begin):
    package = redis.sentinel if form == "threads" else redis.asyncio.sentinel
    addresses = [("127.0.0.1", each.port) for each in sentinels.sentinels]
    client = connect(package.Sentinel(addresses, socket_timeout=5).master_for(NAME))
    with client.lock("lock", wait=20) as held:
        wanted = begin(client.lock("lock").acquire, wait=60)
        wait_for_waiters(sentinels.master.observer, 1)
        sentinels.switch_master()
        wait_for_waiters(sentinels.master.observer, 1)
        assert fence_at(sentinels.master.observer) == held.fence
        assert held.held and not held.lost.is_set()
    assert wanted.result() > held.fence
