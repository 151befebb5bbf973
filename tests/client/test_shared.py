"""Shared locks through the library: readers and writers, and permits. What holds at every
deployment is in support/every_deployment.py."""

import pytest

from support.commands import Lock as Commands, details_of
from support.fake_server import granting, resp
from support.libdlock import EXCLUSIVE, SHARED, Background, Event, State, Status, Told, last_error
from support.server import wait_until
from support.waiting import wait_for_waiters

LEASE_MS = 600_000  # longer than any test


def permit(dlock, limit, name="lock", **options):
    return dlock.lock(name, mode=SHARED, max_holders=limit, **{"lease_ms": LEASE_MS, **options})


def reader(dlock, name="lock", **options):
    return permit(dlock, 0, name, **options)


def take(*locks):
    for lock in locks:
        assert lock.acquire() == Status.OK, lock.error


def holders(client, name="lock"):
    """By token."""
    details = details_of(client.execute_command("DLOCK.INFO", name))
    return {each["token"]: each for each in details["holders"]} if details else {}


def tokens(client, name="lock"):
    return set(holders(client, name))


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, words", [
    ({"max_holders": 5}, "max_holders is given, but mode is not DLOCK_SHARED"),
    ({"mode": 2}, "mode is none of the known"),
    ({"mode": SHARED, "max_holders": 2**31}, "max_holders is more than 2147483647"),
    ({"lease_ms": 9}, "lease_ms: not 10 to 4294967295")])
def test_options_that_make_no_sense_are_refused_in_words(dlock, options, words):
    with pytest.raises(ValueError) as refusal:
        dlock.lock(**options)
    assert refusal.value.args == (Status.INVALID, words)


@pytest.mark.parametrize("options", [{}, {"mode": SHARED}, {"mode": SHARED, "max_holders": 1},
                                     {"mode": SHARED, "max_holders": 2**31 - 1}])
def test_of_good_options_there_is_nothing_to_say(dlock, options):
    take(dlock.lock(**options))
    assert last_error() == ""


def test_several_servers_cannot_count_and_say_so(connect, lend):
    dlock = connect(lend(3))
    with pytest.raises(ValueError) as refusal:
        permit(dlock, 5)
    status, words = refusal.value.args
    assert status == Status.INVALID
    assert words.startswith("max_holders: with several servers nobody can count the holders")
    assert "majority" in words
    dlock.lock(mode=SHARED)


# -- on the wire ----------------------------------------------------------------------------------


def test_every_acquire_has_its_mode_and_no_other_command(fake_server, connect):
    server = fake_server(granting())
    dlock = connect(server.url)
    for lock, mode in ((permit(dlock, 5), [b"SHARED", b"MAX", b"5"]), (reader(dlock), [b"SHARED"]),
                       (dlock.lock(lease_ms=LEASE_MS), [])):
        take(lock)
        token = lock.token
        assert lock.extend() == Status.OK and lock.release() == Status.OK
        acquire, = server.asked("DLOCK.ACQUIRE")[-1:]
        assert acquire == [b"DLOCK.ACQUIRE", b"lock", token, b"PX", b"%d" % LEASE_MS, *mode]
        assert server.asked("DLOCK.EXTEND")[-1][3:] == [b"PX", b"%d" % LEASE_MS]
        assert server.asked("DLOCK.RELEASE")[-1] == [b"DLOCK.RELEASE", b"lock", token]


def test_a_session_that_moves_asks_in_its_mode_again(connect, server, start_proxy, client):
    """Else the server would refuse the token, which holds the lock in the other mode. The server
    does not notice that the old connection has ended."""
    proxy = start_proxy(server)
    lock = permit(connect(proxy), 2, session=True)
    other = permit(connect(server), 2)
    take(lock, other)
    before, first = (lock.token, lock.fence), holders(client)[lock.token]["session"]
    proxy.cut_near()
    wait_until(lambda: holders(client)[lock.token]["session"] != first, "that it is moved")
    wait_until(lambda: lock.state == State.HELD, "that it is ours")
    assert before == (lock.token, lock.fence)
    assert lock.release() == Status.OK
    assert tokens(client) == {other.token}


# -- readers and writers --------------------------------------------------------------------------


def test_a_reader_does_not_overtake_a_writer_that_waits(dlock, client):
    first, late, writer = reader(dlock), reader(dlock), dlock.lock(lease_ms=LEASE_MS)
    take(first)
    writing = Background(writer.acquire, 60_000)
    wait_for_waiters(client, 1)
    assert reader(dlock).acquire() == Status.BUSY
    reading = Background(late.acquire, 60_000)
    wait_for_waiters(client, 2)
    assert first.release() == Status.OK
    assert writing.result() == Status.OK
    assert reading.is_running() and tokens(client) == {writer.token}
    fence = writer.fence
    assert writer.release() == Status.OK
    assert reading.result() == Status.OK
    assert late.fence > fence


def test_all_readers_that_wait_get_in_together(dlock, client):
    writer = dlock.lock(lease_ms=LEASE_MS)
    take(writer)
    readers = [reader(dlock) for _ in range(20)]
    reading = [Background(each.acquire, 60_000) for each in readers]
    wait_for_waiters(client, 20)
    assert writer.release() == Status.OK
    assert {each.result() for each in reading} == {Status.OK}
    assert tokens(client) == {each.token for each in readers}


def test_a_wait_that_is_canceled_lets_the_readers_behind_it_in(dlock, client):
    first, late, writer = reader(dlock), reader(dlock), dlock.lock(lease_ms=LEASE_MS)
    take(first)
    writing = Background(writer.acquire, -1)
    wait_for_waiters(client, 1)
    reading = Background(late.acquire, 60_000)
    wait_for_waiters(client, 2)
    writer.cancel()
    assert writing.result() == Status.CANCELED
    assert reading.result() == Status.OK


def test_one_handle_is_reentrant_and_counts_once(dlock, client):
    lock = permit(dlock, 1)
    take(lock, lock)
    assert len(tokens(client)) == 1
    assert lock.release() == Status.OK
    assert permit(dlock, 1).acquire() == Status.BUSY
    assert lock.release() == Status.OK
    assert tokens(client) == set()


def test_a_guarded_body_may_share(dlock):
    take(reader(dlock))
    assert dlock.scope_run("lock", lambda got: None, mode=SHARED) == Status.OK
    assert dlock.scope_run("lock", lambda got: None) == Status.BUSY


# -- permits --------------------------------------------------------------------------------------


def test_a_permit_comes_back_when_its_holder_dies(connect, server, client):
    dead, alive = connect(server), connect(server)
    held = permit(dead, 1, session=True)
    take(held)
    waiting = permit(alive, 1)
    permitted = Background(waiting.acquire, 60_000)
    wait_for_waiters(client, 1)
    session = Commands(client).info()["session"]
    client.execute_command("CLIENT", "KILL", "ID", session)
    assert permitted.result() == Status.OK
    assert tokens(client) == {waiting.token}


def test_a_limit_counts_all_holders_whatever_theirs_is(dlock):
    take(permit(dlock, 5), permit(dlock, 3))
    assert permit(dlock, 2).acquire() == Status.BUSY
    take(permit(dlock, 3))
    take(reader(dlock))


def test_one_holder_can_lose_the_lock_and_the_others_keep_it(connect, server, client):
    told = Told()
    lost = reader(connect(server, on_event=told), renew_every_ms=50)
    kept = reader(connect(server), renew_every_ms=50)
    take(lost, kept)
    assert Commands(client).release(lost.token) == 1
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lost.release() == Status.LOST
    assert kept.state == State.HELD and kept.extend() == Status.OK
    assert kept.release() == Status.OK


def test_replicas_acknowledge_a_permit(connect, server, start_replica):
    start_replica(server)
    dlock = connect(server)
    take(permit(dlock, 2, min_replicas=1), permit(dlock, 2, min_replicas=1))
    assert permit(dlock, 2, min_replicas=1).acquire() == Status.BUSY


# -- several servers ------------------------------------------------------------------------------


def test_a_server_that_forgot_its_readers_gets_them_back_as_readers(connect, lend):
    servers = lend(3)
    readers = [reader(connect(servers), renew_every_ms=100) for _ in range(2)]
    take(*readers)
    servers[0].crash()
    wait_until(lambda: tokens(servers[0].observer) == {each.token for each in readers},
               "both to be there again")
    assert connect(servers).lock().acquire() == Status.BUSY
    assert [each.state for each in readers] == [State.HELD] * 2
    assert [each.release() for each in readers] == [Status.OK] * 2


# -- the local layer ------------------------------------------------------------------------------


def test_local_locks_leave_shared_claims_alone(connect, server, client):
    dlock = connect(server, hotspot_hand_on=100)
    dlock.hotspot_add()
    readers = [reader(dlock) for _ in range(3)]
    take(*readers)
    assert len(tokens(client)) == 3
    writer = dlock.lock(lease_ms=LEASE_MS)
    writing = Background(writer.acquire, 60_000)
    wait_for_waiters(client, 1)
    for each in readers:
        assert each.release() == Status.OK
    assert writing.result() == Status.OK
    assert tokens(client) == {writer.token}
    late = reader(dlock)
    reading = Background(late.acquire, 60_000)
    wait_for_waiters(client, 1)
    assert writer.release() == Status.OK
    assert reading.result() == Status.OK
    assert tokens(client) == {late.token}
    assert dlock.stats().hand_ons == 0


# -- looking at it --------------------------------------------------------------------------------


def test_every_holder_is_told_of(dlock):
    readers = [reader(dlock) for _ in range(5)]
    take(*readers)
    told = dlock.inspect()
    assert {(token, fence) for _, token, fence, _, _ in told} == \
        {(each.token, each.fence) for each in readers}
    assert {(mode, holders) for *_, mode, holders in told} == {(SHARED, 5)}
    assert len(dlock.inspect(enough=2)) == 2
    assert dlock.inspect("other") == []


def test_a_list_has_the_oldest_holder_of_each_lock(dlock):
    readers = [reader(dlock) for _ in range(5)]
    alone = dlock.lock("alone")
    take(*readers, alone)
    assert readers[0].release() == Status.OK
    oldest = readers[1]
    assert sorted(dlock.list()) == [(b"alone", alone.token, alone.fence, EXCLUSIVE, 1),
                                    (b"lock", oldest.token, oldest.fence, SHARED, 4)]


def test_a_thousand_holders_are_told_of(dlock, client):
    pipeline = client.pipeline(transaction=False)
    for i in range(1000):
        pipeline.execute_command("DLOCK.ACQUIRE", "lock", f"reader-{i}", "PX", LEASE_MS, "SHARED")
    pipeline.execute()
    told = dlock.inspect()
    assert {token for _, token, *_ in told} == {b"reader-%d" % i for i in range(1000)}
    assert [(token, holders) for _, token, *_, holders in dlock.list()] == [(b"reader-0", 1000)]


@pytest.mark.parametrize("holders", [b"*0\r\n", b":1\r\n", b"*1\r\n*0\r\n"])
def test_a_lock_without_a_holder_makes_no_sense(fake_server, connect, holders):
    server = fake_server(lambda words: b"*2\r\n" + resp("holders") + holders)
    with pytest.raises(AssertionError):
        connect(server.url).inspect()
