"""The ACL rules that client/OPERATIONS.md names are enough, and each is needed. Those for clusters
and sentinels: in their files."""

import pytest

from support.acl import LOCKS, rules_for, set_user
from support.commands import stats
from support.libdlock import LIST_FN, Event, State, Status, Told, lib
from support.server import wait_until


@pytest.fixture
def permit(server):
    """permit(rules): the URL of a user who may do just that, on names that begin with lock:"""
    def make(rules):
        set_user(server, rules)
        return f"redis://app:x@127.0.0.1:{server.port}"
    return make


def lock_and_release(client):
    lock = client.lock("lock:a")
    got = lock.acquire()
    if got != Status.OK:
        return got
    assert lock.extend() == Status.OK
    return lock.release()


def test_locks(connect, permit):
    assert lock_and_release(connect(permit(LOCKS))) == Status.OK
    for rule in LOCKS:
        lock = connect(permit([each for each in LOCKS if each != rule])).lock("lock:a")
        results = {lock.acquire(), lock.extend(), lock.release()}
        assert Status.REFUSED in results
    assert connect(permit(LOCKS)).lock("other").acquire() == Status.REFUSED


def test_a_user_that_may_not_name_connections_has_locks_all_the_same(connect, permit, client):
    named = rules_for("`owner` in the URL or `lock_defaults`")
    for rules, names in ((LOCKS, []), ([*LOCKS, *named], ["me"])):
        dlock = connect(permit(rules) + "?owner=me")
        assert lock_and_release(dlock) == Status.OK
        users = [each for each in client.client_list() if each["user"] == "app"]
        assert [each["name"].rpartition(":")[2] for each in users if each["name"]] == names
        dlock.free()


def test_waits_and_kept_locks_need_a_session(connect, permit, client):
    rules = rules_for("waits, `renew`, `session`")
    for options in {}, {"renew": True}, {"session": True}:
        client.execute_command("DLOCK.ACQUIRE", "lock:a", "other", "PX", 100)
        lock = connect(permit(LOCKS + rules)).hold("lock:a", **options, wait_ms=20_000)
        assert lock.release() == Status.OK
        client.execute_command("DLOCK.ACQUIRE", "lock:a", "other", "PX", 60_000)
        lock = connect(permit(LOCKS)).lock("lock:a", **options)
        assert lock.acquire(20_000) == Status.REFUSED and "dlock.session" in lock.error.lower()
        client.delete("lock:a")


def read(function, client, text):
    tell = LIST_FN(lambda arg, found: True)
    return Status(function(client.handle, text, 20_000, tell, None, None, 0))


@pytest.mark.parametrize("what, function, text", [
    ("`dlock_inspect`, `dlock_list_waiters`", lib.dlock_inspect, b"lock:a"),
    ("`dlock_list`", lib.dlock_list, b"lock:*")])
def test_reading(connect, permit, client, what, function, text):
    client.execute_command("DLOCK.ACQUIRE", "lock:a", "other", "PX", 60_000)
    rules = rules_for(what)
    assert read(function, connect(permit(rules)), text) == Status.OK
    for rule in rules:
        fewer = [each for each in rules if each != rule]
        assert read(function, connect(permit(fewer)), text) == Status.REFUSED


def test_losses_that_are_told_at_once(server, connect, permit, client):
    told = Told()
    url = permit(LOCKS + rules_for("losses that are told at once"))
    lock = connect(url, on_event=told).hold("lock:a", lease_ms=60_000, renew_every_ms=50_000)
    wait_until(lambda: stats(client)["watches"] == 1, "the watched name")
    client.delete("lock:a")
    wait_until(lambda: told.find(Event.LOST, "lock:a"), "the loss", timeout=30)
    assert lock.state == State.LOST


def test_watched_names(connect, permit, client):
    watcher = connect(permit(rules_for("`dlock_watch`"))).watch("lock:a", None)
    client.execute_command("DLOCK.ACQUIRE", "lock:a", "other", "PX", 60_000)
    wait_until(lambda: watcher.now() == b"other", "the holder")


def test_guarded_commands(connect, permit):
    rules = LOCKS + rules_for("`dlock_guarded`")
    lock = connect(permit([*rules, "+set"])).hold("lock:a")
    assert lock.guarded("SET", "lock:data", "1")[0] == Status.OK
    assert lock.release() == Status.OK
    lock = connect(permit(rules)).hold("lock:a")
    assert lock.guarded("SET", "lock:data", "1")[0] == Status.REFUSED


def test_another_database(connect, permit):
    rules = rules_for("a database other than 0")
    assert lock_and_release(connect(permit(LOCKS + rules) + "/3")) == Status.OK
    assert lock_and_release(connect(permit(LOCKS) + "/3")) == Status.REFUSED


def test_replicas(server, connect, permit, start_server):
    start_server("--replicaof", f"127.0.0.1 {server.port}")
    wait_until(lambda: server.observer.info("replication")["connected_slaves"] == 1, "the replica")
    client = connect(permit(LOCKS + rules_for("`min_replicas`")), io_timeout_ms=20_000)
    lock = client.lock("lock:a", min_replicas=1)
    wait_until(lambda: lock.acquire(20_000) == Status.OK, "the replica to acknowledge")
    assert lock.release() == Status.OK
    refused = connect(permit(LOCKS)).lock("lock:a", min_replicas=1)
    assert refused.acquire() == Status.REFUSED
