"""Sessions in the moments that a client cannot see: two things in one turn, work half done."""

import threading

import pytest
import redis

from support import other_module
from support.commands import Lock, stats
from support.server import free_port, wait_until
from support.turn import Bare, in_one_turn, in_two_turns, sleep_then
from support.waiting import Waiting, let_turn

ID = "session-0123456789"
TIMEOUT = 600_000


class Session:
    """A session and its connection, which never waits: it asks in a transaction."""

    def __init__(self, server, id=ID, timeout=TIMEOUT):
        self.server, self.id, self.timeout = server, id, timeout
        self.connect()

    def connect(self):
        self.client = redis.Redis("127.0.0.1", self.server.port)
        self.server.keep(self.client)
        return self.hear()

    def hear(self, *options):
        """Its events."""
        words = ("DLOCK.SESSION", self.id, "PX", self.timeout, *options)
        [[self.born, events]] = in_one_turn(self.client, words)
        return events

    def close(self):
        """Until the server knows."""
        self.client.connection_pool.disconnect()
        wait_until(lambda: stats(self.server.observer)["sessions_away"] == 1, "the end of it")

    def end(self):
        return self.server.observer.execute_command("DLOCK.SESSION", self.id, "END")


def acquire(client, key, token, *options):
    return client.execute_command("DLOCK.ACQUIRE", key, token, *options)


def wait_via(client, token, *options, id=ID):
    """In the queue for "lock"."""
    options = ("PX", 60_000, "WAIT", TIMEOUT, "VIA", id, *options)
    assert acquire(client, "lock", token, *options) == b"QUEUED"


@pytest.fixture
def session(server):
    yield (opened := Session(server))
    opened.end()


# -- holds -----------------------------------------------------------------------------------------

def test_a_token_keeps_its_lock_when_its_connection_ends_in_the_same_turn(server, lock):
    holder = Waiting(server, "holder", options=["SESSION"])
    fence = holder.answer()
    kill, again = in_one_turn(server.client(), ("CLIENT", "KILL", "ID", holder.id),
                              ("DLOCK.ACQUIRE", "lock", "holder", "PX", 60_000))
    let_turn(server)
    assert (kill, again, lock.info()["fence"]) == (1, fence, fence)
    assert stats(server.observer)["session_holds"] == 0
    assert lock.extend("holder") == 1


def test_a_hold_whose_session_has_ended_cannot_be_acquired_again(server, lock, session):
    client = server.client()
    first = acquire(client, "lock", "one", "SHARED", "VIA", ID, "SESSION")
    acquire(client, "lock", "two", "SHARED", "PX", 60_000)
    acquire(client, "lock", "three", "SHARED", "PX", 60_000)
    ended, extended, again = in_one_turn(
        client, ("DLOCK.SESSION", ID, "END"), ("DLOCK.EXTEND", "lock", "one", "PX", 60_000),
        ("DLOCK.ACQUIRE", "lock", "one", "PX", 60_000, "SHARED"))
    let_turn(server)
    assert (ended, extended) == (1, 0)
    assert again > first
    assert lock.release("one") == 1


def test_a_grace_period_begins_again_with_every_absence(server, clock, lock, session):
    acquire(server.client(), "lock", "me", "VIA", ID, "SESSION", "GRACE", 10_000)
    acquire(server.client(), "other", "me", "PX", 12_000)
    session.close()
    clock.advance(9)
    back_for_a_moment(session)
    clock.advance(5)
    assert lock.info() is not None
    assert server.client().execute_command("EXISTS", "other") == 0
    clock.advance(6)
    assert lock.info() is None


def back_for_a_moment(session):
    """The session is heard of, and its connection closes in the same turn."""
    client = redis.Redis("127.0.0.1", session.server.port, max_connections=1)
    in_one_turn(client, ("DLOCK.SESSION", session.id, "PX", session.timeout),
                ("CLIENT", "KILL", "ID", client.client_id(), "SKIPME", "no"))
    let_turn(session.server)


def test_a_grace_period_counts_soon_after_the_start_of_the_server(start_server):
    server = start_server("--appendonly", "yes")
    server.restart()
    session, lock = Session(server), Lock(server.client())
    acquire(lock.client, "lock", "me", "VIA", ID, "SESSION", "GRACE", 5_000)
    session.close()
    assert lock.info()["ttl"] <= 5_000
    server.clock.advance(6)
    assert lock.client.execute_command("EXISTS", "lock") == 0


def test_an_extension_while_the_session_is_away_counts(server, clock, lock, session):
    acquire(lock.client, "lock", "me", "PX", 10_000, "VIA", ID, "SESSION", "GRACE", 60_000)
    session.close()
    let_turn(server)
    assert lock.extend("me", 40_000) == 1
    clock.advance(30)
    assert lock.info() is not None
    clock.advance(11)
    assert lock.info() is None


def test_a_client_that_acknowledges_nothing_cannot_lose_more_and_more(server, lock, session):
    lock.client.config_set("dlock.max-events", 2)
    for token in "one", "two":
        acquire(lock.client, "lock", token, "VIA", ID, "SESSION")
        lock.client.delete("lock")
        let_turn(server)
    with pytest.raises(redis.ResponseError, match="QUEUEFULL too many events"):
        acquire(lock.client, "lock", "three", "VIA", ID, "SESSION")
    assert acquire(lock.client, "lock", "three", "PX", 1000) > 0
    [_, last] = session.hear()
    session.hear("ACK", last[0])
    assert acquire(lock.client, "other", "four", "VIA", ID, "SESSION") > 0


def test_a_full_mailbox_refuses_nothing_to_others(server, lock, session):
    """Whether its events tell of watches or of waits."""
    other = Session(server, "another-0123456789")
    lock.client.config_set("dlock.max-events", 2)
    for key in "one", "two", "three":
        lock.client.execute_command("DLOCK.WATCH", key, ID)
    wait_until(lambda: stats(lock.client)["events_unacknowledged"] == 3, "all to be told")
    with pytest.raises(redis.ResponseError, match="QUEUEFULL too many events of this session"):
        acquire(lock.client, "lock", "me", "VIA", ID, "SESSION")
    assert acquire(lock.client, "lock", "me", "VIA", other.id, "SESSION") > 0
    with pytest.raises(redis.ResponseError, match="QUEUEFULL too many events of this session"):
        wait_via(lock.client, "you")
    words = ("DLOCK.ACQUIRE", "lock", "you", "PX", 1000, "WAIT", 1000, "VIA", other.id)
    assert lock.client.execute_command(*words) == b"QUEUED"
    other.end()


def test_a_session_outlives_a_pause_in_which_it_cannot_be_heard(server, clock, lock, session):
    """CLIENT PAUSE holds its heartbeats up."""
    before = stats(server.observer)["session_timeouts"]
    fence = acquire(lock.client, "lock", "me", "VIA", ID, "SESSION")
    pause_ms = 10 * TIMEOUT
    in_one_turn(server.observer, ("CLIENT", "PAUSE", pause_ms, "ALL"))
    session.client.connection_pool.disconnect()
    heartbeat, competitor = Bare(server), Bare(server)
    heartbeat.send(f"DLOCK.SESSION {ID} PX {TIMEOUT}")
    competitor.send("DLOCK.ACQUIRE lock other PX 1000")
    for _ in range(3):
        clock.advance(TIMEOUT / 1000)
    clock.step(pause_ms / 1000 + 1)
    assert competitor.read() == [b"$-1"]
    let_turn(server)
    assert (session.connect(), lock.info()["fence"]) == ([], fence)
    assert stats(server.observer)["session_timeouts"] == before
    heartbeat.close()
    competitor.close()


def test_a_heartbeat_that_the_server_had_no_time_to_read_counts(server, session):
    """The server is busy past the end of the session, in a turn in which other work is due."""
    before = stats(server.observer)["session_timeouts"]
    brief, heartbeat = Session(server, "another-0123456789", 1000), Bare(server)
    assert heartbeat.call("PING") == b"+PONG"
    beat = threading.Timer(0.3, heartbeat.send, [f"DLOCK.SESSION {brief.id} PX 1000"])
    beat.start()
    in_two_turns(server, ("DLOCK.WATCH", "lock", ID), ("DEBUG", "SLEEP", 1.5))
    let_turn(server)
    assert stats(server.observer)["session_timeouts"] == before
    brief.end()
    heartbeat.close()
    beat.join()


@pytest.mark.parametrize("options", [(), ("SHARED",), ("GRACE", 5_000)], ids=str)
def test_a_session_whose_time_is_over_keeps_its_holds_until_it_ends(server, session, options):
    """The server was busy, and reads the request of a competitor before the heartbeat."""
    acquire(server.observer, "lock", "me", "VIA", ID, "SESSION", *options)
    beat = f"DLOCK.SESSION {ID} PX {TIMEOUT}"
    replies = sleep_then(server, TIMEOUT / 1000 + 1, "DLOCK.ACQUIRE lock other PX 1000", beat)
    assert replies == [b"$-1", b"*2"]
    let_turn(server)
    assert (session.hear(), Lock(server.observer).info()["token"]) == ([], b"me")


def test_a_lock_that_an_operator_lets_expire_is_lost_soon(server, clock, session):
    client = server.client()
    acquire(client, "lock", "me", "VIA", ID, "SESSION")
    wait_via(client, "other")
    client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    client.pexpire("lock", 1000)
    clock.step(2)
    clock.advance(0.3)
    client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    assert sorted(event[1] for event in session.hear()) == [b"granted", b"lost"]


def test_the_end_of_a_session_with_many_holds_holds_up_no_other(server, lock, session):
    """Its locks end in portions, and those of others in between."""
    many = Session(server, "another-0123456789")
    pipe = lock.client.pipeline(transaction=False)
    for i in range(20_000):
        pipe.execute_command("DLOCK.ACQUIRE", f"many:{i}", "me", "VIA", many.id, "SESSION")
    pipe.execute()
    acquire(lock.client, "lock", "me", "VIA", ID, "SESSION", "GRACE", 0)
    waiter = Waiting(server, "waiter")
    client_id = lock.info()["session"]
    _, _, left = in_one_turn(lock.client, ("DLOCK.SESSION", many.id, "END"),
                             ("CLIENT", "KILL", "ID", client_id), ("INFO", "dlock"))
    assert left["dlock_session_holds"] == 20_001
    assert waiter.answer() > 0
    assert stats(lock.client)["session_holds"] > 1000


# -- waits -----------------------------------------------------------------------------------------

def test_a_grant_that_was_never_told_is_free_again_at_once(server, lock, session):
    lock.acquire("before")
    wait_via(lock.client, "me")
    assert lock.release("before") == 1
    assert lock.info()["token"] == b"me"
    session.close()
    let_turn(server)
    assert lock.acquire("other") is not None


@pytest.mark.parametrize("options", [(), ("SESSION",)])
def test_a_grant_that_an_ended_session_was_never_told_is_free_again(server, lock, session, options):
    lock.acquire("before")
    wait_via(lock.client, "me", *options)
    in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "before"), ("DLOCK.SESSION", ID, "END"))
    let_turn(server)
    assert lock.info() is None
    assert stats(lock.client)["waiters"] == 0


def test_a_demoted_server_takes_no_grant_back_when_it_is_promoted(server, lock, session):
    """The holder may have been told elsewhere meanwhile."""
    lock.acquire("before")
    wait_via(lock.client, "me")
    in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "before"), ("DLOCK.SESSION", ID, "END"),
                ("REPLICAOF", "127.0.0.1", free_port()))
    let_turn(server)
    lock.client.execute_command("REPLICAOF", "NO", "ONE")
    let_turn(server)
    assert lock.info()["token"] == b"me"


def test_a_grant_that_was_told_outlives_its_session(server, lock, session):
    lock.acquire("before")
    wait_via(lock.client, "me")
    lock.release("before")
    [event] = session.hear()
    session.end()
    let_turn(server)
    assert lock.info()["fence"] == event[4]


def test_a_token_that_gets_the_lock_by_itself_does_not_wait_any_more(server, lock, session):
    lock.acquire("before")
    wait_via(lock.client, "me")
    session.close()
    lock.release("before")
    let_turn(server)
    options = ("PX", 60_000, "WAIT", TIMEOUT, "VIA", ID)
    assert acquire(lock.client, "lock", "me", *options) > 0
    assert stats(lock.client)["waiters"] == 0
    session.connect()
    let_turn(server)
    assert lock.release("me") == 1
    assert (lock.info(), session.hear()) == (None, [])


def test_an_absent_writer_holds_up_no_reader(server, session):
    """Time stands still: the module does not look again by itself."""
    client = server.client()
    client.execute_command("DLOCK.ACQUIRE", "lock", "reader", "PX", 60_000, "SHARED")
    wait_via(client, "writer")
    reader = Waiting(server, "another", options=["SHARED"])
    assert not reader.is_answered()
    session.close()
    assert reader.is_answered()


# -- events ----------------------------------------------------------------------------------------

def test_only_events_that_were_written_are_acknowledged(server, lock, session):
    lock.acquire("before")
    wait_via(lock.client, "me")
    lock.release("before")
    [event] = session.hear("ACK", 2**63 - 1)
    assert event[1] == b"granted"
    assert session.hear("ACK", 2**63 - 1) == []


def test_a_client_that_acknowledges_nothing_cannot_wait_more_and_more(server, lock, session):
    lock.client.config_set("dlock.max-events", 2)
    lock.acquire("holder")
    for token in "one", "two":
        wait_via(lock.client, token)
        assert lock.release(token) == 0
    with pytest.raises(redis.ResponseError, match="QUEUEFULL too many events"):
        wait_via(lock.client, "three")
    [_, last] = session.hear()
    session.hear("ACK", last[0])
    wait_via(lock.client, "three")


def test_without_memory_sessions_go_on_and_none_is_opened(server, session):
    client = server.client()
    client.execute_command("DLOCK.WATCH", "lock", ID)
    let_turn(server)
    client.config_set("maxmemory", 1)
    [_, [event]] = client.execute_command("DLOCK.SESSION", ID, "PX", TIMEOUT)
    assert event[1] == b"changed"
    with pytest.raises(redis.ResponseError, match="OOM"):
        client.execute_command("DLOCK.SESSION", "another-0123456789", "PX", TIMEOUT)
    client.config_set("maxmemory", 0)


def test_a_second_watcher_is_never_told_that_a_held_lock_is_free(server, lock, session):
    other = Session(server, "another-0123456789")
    lock.acquire("holder")
    replies = in_one_turn(lock.client, ("DLOCK.WATCH", "lock", ID),
                          ("DLOCK.WATCH", "lock", other.id),
                          ("DLOCK.SESSION", other.id, "PX", TIMEOUT))
    assert replies[2][1] == []
    let_turn(server)
    assert [event[3] for event in other.hear()] == [b"holder"]
    other.end()


@pytest.mark.parametrize("how", ["TIMEOUT", "ERROR"])
def test_a_heartbeat_unblocked_in_the_turn_of_its_event_is_answered_or_cut(server, session, how):
    """Some servers drop the reply then."""
    bare, client = Bare(server), server.client()
    client_id = int(bare.call("CLIENT ID")[1:])
    for _ in range(2):  # the first one of a connection is answered at once
        bare.send(f"DLOCK.SESSION {ID} PX {TIMEOUT}")
    wait_until(lambda: client.client_list(client_id=[str(client_id)])[0]["flags"] == "b", "it")
    assert bare.read(3)[::2] == [b"*2", b"*0"]
    acquire(client, "lock", "before", "PX", 60_000)
    wait_via(client, "me")
    in_one_turn(client, ("DLOCK.RELEASE", "lock", "before"), ("CLIENT", "UNBLOCK", client_id, how))
    bare.socket.settimeout(5)
    first = bare.read()[0]
    assert first in (b"*2", b"") or first.startswith(b"-UNBLOCKED")
    bare.close()


def test_a_heartbeat_that_is_unblocked_tells_the_life_of_its_own_session(server, session):
    """The connection has another session, whose heartbeat was unblocked before."""
    bare, client = Bare(server), server.client()
    client_id = int(bare.call("CLIENT ID")[1:])
    other = "another-0123456789"
    for id in ID, other:
        for _ in range(2):  # the first one of a connection is answered at once
            bare.send(f"DLOCK.SESSION {id} PX {TIMEOUT}")
        wait_until(lambda: client.client_list(client_id=[str(client_id)])[0]["flags"] == "b", "it")
        born = bare.read(3)[1]
        assert client.client_unblock(client_id) == 1
        assert bare.read(3) == [b"*2", born, b"*0"]
    client.execute_command("DLOCK.SESSION", other, "END")
    bare.close()


# -- callers ---------------------------------------------------------------------------------------

def test_another_module_may_use_a_session(server, session, tmp_path):
    client = server.client()
    client.execute_command("MODULE", "LOAD", str(other_module.build(tmp_path)))
    words = ("DLOCK.ACQUIRE", "lock", "me", "VIA", ID, "SESSION")
    assert client.execute_command("OTHER.CALL", *words) > 0
    assert client.execute_command("OTHER.CALL", "DLOCK.WATCH", "lock", ID) == b"OK"
    client.execute_command("MODULE", "UNLOAD", "other")
