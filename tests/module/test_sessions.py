"""DLOCK.SESSION: the life of a session, from its first heartbeat to its end."""

import re

import pytest
import redis

from support.commands import Lock, stats
from support.server import free_port, wait_until
from support.session import Session
from support.turn import Bare, in_one_turn, send_in_two_turns
from support.waiting import queue_up

ID = "0123456789abcdef"
TIMEOUT_S = 60
SLACK_S = 5  # so long the machine may let nobody work while time goes by


def sessions(client):
    return stats(client)["sessions"]


def is_there(session):
    """Asked in a way that neither keeps it alive nor changes it."""
    try:
        return session.commands.execute_command("DLOCK.UNWATCH", "k", session.name) == b"OK"
    except redis.ResponseError as error:
        assert str(error).startswith("NOSESSION")
        return False


# -- arguments ------------------------------------------------------------------------------------


WRONG_CALLS = {
    # the words of a call with ... in their middle; what comes there, and what the error must say
    ("DLOCK.SESSION", ID, ...): [
        (("PX",), "PX needs a value"),
        (("PX", 1000, "PX", 1000), "PX is given twice"),
        (("PX", 1000, "ACK"), "ACK needs a value"),
        (("PX", 1000, "ACK", 1, "ACK", 1), "ACK is given twice"),
        (("PX", 1000, "ACK", 0, "ACK", 0), "ACK is given twice"),
        *((("PX", 1000, "ACK", wrong), "ACK must be an integer") for wrong in (-1, "x", 2**63)),
        (("ACK", 1), "PX is missing"),
        (("PX", 99), "PX must be at least 100"),
        *((("PX", wrong), "PX must be an integer from 1 to 86400000")
          for wrong in (0, "x", 86_400_001)),
        (("PX", 1000, "END"), "unknown option 'END'"),
        (("END", "PX", 1000), "unknown option 'END'"),
        (("END", "END"), "unknown option 'END'"),
        (("BEGIN",), "unknown option 'BEGIN'"),
        ((), "wrong number of arguments"),
    ],
    ("DLOCK.SESSION", ...): [((), "wrong number of arguments")],
    ("DLOCK.WATCH", ...): [(("k",), "wrong number"), (("k", ID, "x"), "wrong number")],
    ("DLOCK.UNWATCH", ...): [(("k",), "wrong number"), (("k", ID, "x"), "wrong number")],
    ("DLOCK.ACQUIRE", "lock", "me", "PX", 1000, ...): [
        (("VIA",), "VIA needs the id of a session"),
        (("VIA", ID, "VIA", ID), "VIA is given twice"),
        (("SESSION", "GRACE", 1), "GRACE needs VIA and SESSION"),
        (("VIA", ID, "GRACE", 1), "GRACE needs VIA and SESSION"),
        (("VIA", ID, "SESSION", "GRACE"), "GRACE needs a value"),
        (("VIA", ID, "SESSION", "GRACE", 0, "GRACE", 0), "GRACE is given twice"),
        *((("VIA", ID, "SESSION", "GRACE", wrong), "GRACE must be an integer from 0")
          for wrong in (-1, 86_400_001)),
        (("VIA", ID, "SESSION", "SESSION"), "SESSION is given twice"),
    ],
}


@pytest.mark.parametrize("words, message", [
    ((*head, *more), message)
    for (*head, _), rows in WRONG_CALLS.items() for more, message in rows])
def test_a_wrong_call_names_the_argument_and_changes_nothing(client, words, message):
    with pytest.raises(redis.ResponseError, match=re.escape(message)):
        client.execute_command(*words)
    assert (sessions(client), client.dbsize()) == (0, 0)


@pytest.mark.parametrize("name, message", [
    ("x" * 15, "16 to 64 bytes, not 15"), ("x" * 65, "16 to 64 bytes, not 65"), ("", "not 0"),
])
@pytest.mark.parametrize("words", [
    ("DLOCK.SESSION", "{}", "PX", 1000), ("DLOCK.SESSION", "{}", "END"), ("DLOCK.WATCH", "k", "{}"),
    ("DLOCK.UNWATCH", "k", "{}"), ("DLOCK.ACQUIRE", "k", "t", "PX", 1000, "VIA", "{}"),
], ids=lambda words: words[0])
def test_an_id_has_16_to_64_bytes(client, words, name, message):
    with pytest.raises(redis.ResponseError, match=message):
        client.execute_command(*(name if word == "{}" else word for word in words))


@pytest.mark.parametrize("name", ["x" * 16, "x" * 64, b"\x00\r\n" * 8])
def test_an_id_may_have_any_bytes(server, name):
    assert Session(server, name=name).end() == 1


def test_only_a_hold_of_a_session_may_leave_out_its_lease(session):
    with pytest.raises(redis.ResponseError, match="PX is missing"):
        session.acquire("me")
    assert session.acquire("me", "SESSION") > 0


NEED_A_SESSION = [
    ("DLOCK.ACQUIRE", "lock", "me", "PX", 1000, "VIA", ID),
    ("DLOCK.ACQUIRE", "lock", "me", "PX", 1000, "WAIT", 1000, "VIA", ID),
    ("DLOCK.ACQUIRE", "lock", "me", "SESSION", "VIA", ID),
    ("DLOCK.ACQUIREALL", 2, "lock", "other", "me", "PX", 1000, "VIA", ID),
    ("DLOCK.WATCH", "lock", ID), ("DLOCK.UNWATCH", "lock", ID),
]


@pytest.mark.parametrize("words", NEED_A_SESSION, ids=str)
def test_a_session_has_to_be_opened_first(client, words):
    with pytest.raises(redis.ResponseError, match="^NOSESSION"):
        client.execute_command(*words)
    assert client.dbsize() == 0


# -- heartbeats -----------------------------------------------------------------------------------


def test_the_first_heartbeat_returns_at_once(client):
    born, events = client.execute_command("DLOCK.SESSION", ID, "PX", 60_000)
    assert born > 0 and events == []
    assert (sessions(client), stats(client)["heartbeats"]) == (1, 1)


def test_a_later_heartbeat_waits_for_events(session):
    session.send()
    assert not session.is_answered()


def test_nothing_to_acknowledge_is_acknowledged_by_0(session):
    """As on the first heartbeat of a loop."""
    session.connection.send_command("DLOCK.SESSION", session.name, "PX", 60_000, "ACK", 0)
    assert not session.is_answered()


def test_a_heartbeat_returns_after_a_third_of_the_timeout(session, clock):
    session.park()
    clock.advance(TIMEOUT_S / 3 - SLACK_S)
    assert not session.is_answered()
    clock.advance(SLACK_S)
    assert session.is_answered()
    assert session.read() == (session.born, [])


def test_a_session_lives_for_its_timeout_after_the_last_heartbeat_has_come(session, clock):
    """That it waits does not count: its machine may be dead."""
    for _ in range(3):
        session.park()
        clock.advance(TIMEOUT_S - SLACK_S)
        assert is_there(session)
        assert session.read() == (session.born, [])
    clock.advance(SLACK_S)
    assert not is_there(session)
    assert stats(session.commands)["session_timeouts"] == 1


@pytest.mark.parametrize("words", [
    ("DLOCK.ACQUIRE", "lock", "me", "SESSION", "VIA"), ("DLOCK.WATCH", "lock"),
], ids=lambda words: words[0])
def test_other_commands_do_not_keep_the_session_alive(session, clock, words):
    clock.advance(TIMEOUT_S - SLACK_S)
    session.commands.execute_command(*words, session.name)
    clock.advance(SLACK_S)
    assert not is_there(session)


def test_the_timeout_of_a_session_never_changes(session, clock):
    """Replicas know its holds with a lease of that length."""
    for timeout_ms in (59_999, 60_001):
        with pytest.raises(redis.ResponseError, match="PX differs"):
            session.call(timeout_ms=timeout_ms)
    clock.advance(TIMEOUT_S + 1)
    assert not is_there(session), "a refused heartbeat has kept it alive"


def test_a_session_that_was_forgotten_is_born_again_later(session, clock):
    session.end()
    again = Session(session.server, name=session.name)
    assert again.born > session.born


def test_sessions_born_in_one_turn_differ(client):
    replies = in_one_turn(client, *[("DLOCK.SESSION", f"{i:016}", "PX", 1000) for i in range(20)])
    assert len({born for born, _ in replies}) == 20


def test_a_session_goes_on_over_another_connection(session):
    session.park()
    older = session.connection
    session.connect()
    assert session.call() == (session.born, [])
    assert older.read_response() == [session.born, []]
    session.send()
    older.disconnect()
    wait_until(lambda: stats(session.commands)["sessions_away"] == 0, "the end to be noticed")
    assert not session.is_answered()


def test_a_second_heartbeat_of_a_connection_comes_after_the_first(server, session):
    """A parked client sends nothing else, so the second waits for the first."""
    session.send()
    session.send()
    assert not session.is_answered()
    session.watch()
    assert session.event() == ["changed", "lock", None]


@pytest.mark.parametrize("is_parked", [False, True], ids=["idle", "parked"])
@pytest.mark.parametrize("end", [
    Session.go_away, lambda session: session.go_away(is_reset=True),
    lambda session: session.server.observer.client_kill_filter(_id=session.id),
], ids=["close", "reset", "kill"])
def test_a_session_is_away_from_the_end_of_its_connection_until_it_is_heard_of(
        session, client, is_parked, end):
    if is_parked:
        session.park()
    assert stats(client)["sessions_away"] == 0
    end(session)
    wait_until(lambda: stats(client)["sessions_away"] == 1, "it to be away")
    assert is_there(session)
    assert session.come_back() == []
    assert (sessions(client), stats(client)["sessions_away"]) == (1, 0)


def test_sessions_of_one_connection_have_lives_of_their_own(server, client):
    bare = Bare(server)
    bare.send(*(f"DLOCK.SESSION {i:016} PX 60000" for i in range(3)), f"DLOCK.SESSION {1:016} END")
    assert bare.read(10)[-1] == b":1"
    bare.close()
    wait_until(lambda: stats(client)["sessions_away"] == 2, "two to be away")
    assert sessions(client) == 2


# -- the end --------------------------------------------------------------------------------------


def test_a_session_ends_by_end(session):
    assert session.end() == 1
    assert not is_there(session)
    assert session.end() == 0


def test_the_waiting_heartbeat_of_an_ended_session_says_so(session):
    session.park()
    session.end()
    with pytest.raises(redis.ResponseError, match="^NOSESSION"):
        session.read()


@pytest.mark.parametrize("end", [lambda session, clock: session.end(),
                                 lambda session, clock: clock.advance(TIMEOUT_S + 1)],
                         ids=["END", "time"])
def test_a_session_that_is_away_ends_as_any_other(session, clock, end):
    session.go_away()
    end(session, clock)
    assert not is_there(session)
    assert stats(session.commands)["sessions_away"] == 0


def test_a_session_that_ends_and_is_opened_again_in_one_turn_has_lost_all(session, lock):
    session.hold("me")
    session.wait("you")
    session.watch("other")
    one, (born, events) = in_one_turn(
        lock.client, ("DLOCK.SESSION", session.name, "END"),
        ("DLOCK.SESSION", session.name, "PX", 60_000))
    assert (one, events) == (1, []) and born > session.born
    wait_until(lambda: lock.info() is None, "the lock to end")
    left = stats(lock.client)
    assert [left[name] for name in ("session_holds", "session_waiters", "watches",
                                    "events_unacknowledged")] == [0, 0, 0, 0]


# -- contexts -------------------------------------------------------------------------------------


def test_in_a_transaction_a_session_is_heard_of_at_once_and_queues(session, client):
    acquire = ("DLOCK.ACQUIRE", "lock", "you", "PX", 60_000, "WAIT", 60_000, "VIA", session.name)
    replies = in_one_turn(client, ("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000), acquire,
                          ("DLOCK.SESSION", session.name, "PX", 60_000))
    assert replies[1:] == [b"QUEUED", [session.born, []]]
    assert stats(client)["session_waiters"] == 1


@pytest.mark.parametrize("words", [("PX", "60000"), ("END",)])
def test_a_script_has_no_session(session, client, words):
    arguments = ", ".join(f"'{word}'" for word in (session.name, *words))
    with pytest.raises(redis.ResponseError, match="needs a connection"):
        client.eval(f"return redis.call('DLOCK.SESSION', {arguments})", 0)
    assert is_there(session)


def test_a_script_queues_and_watches_for_a_session(session, client):
    script = """
        redis.call('DLOCK.ACQUIRE', KEYS[1], 'me', 'PX', 60000)
        redis.call('DLOCK.WATCH', KEYS[1], ARGV[1])
        return redis.call('DLOCK.ACQUIRE', KEYS[1], 'you', 'PX', 60000, 'WAIT', 60000,
                          'VIA', ARGV[1])"""
    assert client.eval(script, 1, "lock", session.name) == b"QUEUED"
    assert session.event() == ["changed", "lock", "me"]


def test_the_null_of_an_event_is_that_of_the_protocol(server, session):
    bare = Bare(server)
    bare.call("HELLO 3")
    session.watch()
    for _ in range(2):  # the first one of a connection is answered at once
        bare.send(f"DLOCK.SESSION {session.name} PX 60000")
    line = b""
    while line != b"+changed":
        line = bare.read()[0]
    assert bare.read(3) == [b"$4", b"lock", b"_"]
    bare.close()


def assert_unblocked(session, how):
    if how == "TIMEOUT":
        assert session.read() == (session.born, [])
    else:
        with pytest.raises(redis.ResponseError, match="UNBLOCKED"):
            session.read()


@pytest.mark.parametrize("how", ["TIMEOUT", "ERROR"])
def test_an_unblocked_heartbeat_returns_and_the_session_goes_on(session, client, how):
    session.park()
    assert client.execute_command("CLIENT", "UNBLOCK", session.id, how) == 1
    assert_unblocked(session, how)
    session.watch()
    assert session.event() == ["changed", "lock", None]


@pytest.mark.parametrize("how", ["TIMEOUT", "ERROR"])
def test_a_heartbeat_unblocked_in_the_turn_of_its_event_is_answered_or_cut(session, lock, how):
    """Some servers drop the reply then."""
    lock.acquire("me")
    session.wait("you")
    session.park()
    in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "me"),
                ("CLIENT", "UNBLOCK", session.id, how))
    try:
        born, _ = session.read()
        assert born == session.born
    except redis.ResponseError as error:
        assert str(error).startswith("UNBLOCKED")
    except redis.ConnectionError:
        pass


def test_a_heartbeat_that_is_unblocked_tells_the_life_of_its_own_session(server, client):
    """The connection has another session, whose heartbeat was unblocked before."""
    bare = Bare(server)
    client_id = int(bare.call("CLIENT ID")[1:])
    for name in ID, "another-0123456789":
        for _ in range(2):  # the first one of a connection is answered at once
            bare.send(f"DLOCK.SESSION {name} PX 60000")
        born = bare.read(3)[1]
        wait_until(lambda: client.client_unblock(client_id) == 1, "the heartbeat to be parked")
        assert bare.read(3) == [b"*2", born, b"*0"]
        client.execute_command("DLOCK.SESSION", name, "END")
    bare.close()


def test_an_unblocked_connection_that_waits_for_a_lock_gets_only_that_reply(session, lock, clock):
    """The heartbeat that was unblocked is freed later, when the session has an event."""
    session.park()
    lock.client.execute_command("CLIENT", "UNBLOCK", session.id)
    assert session.read() == (session.born, [])
    lock.acquire("me")
    session.connection.send_command("DLOCK.ACQUIRE", "lock", "you", "PX", 1000, "WAIT", 60_000)
    wait_until(lambda: stats(lock.client)["waiters"] == 1, "it to wait")
    session.watch("other")
    assert not session.is_answered()
    lock.release("me")
    assert session.connection.read_response() > 0
    assert session.event() == ["changed", "other", None]


def test_a_session_ends_after_a_pause_not_in_it(session, lock, clock):
    """Its locks could not end before, either: nothing is written in a pause."""
    session.hold("me")
    lock.client.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
    clock.advance(TIMEOUT_S + 1)
    assert lock.info()["token"] == b"me" and sessions(lock.client) == 1
    lock.client.execute_command("CLIENT", "UNPAUSE")
    wait_until(lambda: lock.info() is None and sessions(lock.client) == 0, "both to end")


def test_heartbeats_go_on_while_writes_are_paused(session, client, clock):
    client.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
    clock.advance(TIMEOUT_S - SLACK_S)
    session.send()
    assert not session.is_answered()
    clock.advance(TIMEOUT_S / 3)
    assert session.is_answered()
    client.execute_command("CLIENT", "UNPAUSE")
    assert is_there(session)


# -- users and limits -----------------------------------------------------------------------------


@pytest.fixture
def stranger(server, client):
    client.execute_command("ACL", "SETUSER", "stranger", "on", "nopass", "~*", "&*", "+@all")
    return server.client(username="stranger", password="x")


@pytest.mark.parametrize("words, error", [
    (("DLOCK.SESSION", "{}", "PX", 60_000), "NOPERM"),
    (("DLOCK.SESSION", "{}", "END"), "NOSESSION"),
    (("DLOCK.WATCH", "k", "{}"), "NOSESSION"), (("DLOCK.UNWATCH", "k", "{}"), "NOSESSION"),
    (("DLOCK.ACQUIRE", "k", "t", "PX", 1000, "VIA", "{}"), "NOSESSION"),
], ids=str)
def test_a_session_belongs_to_the_user_who_opened_it(session, stranger, words, error):
    words = [session.name if word == "{}" else word for word in words]
    try:
        stranger.execute_command(*words)
        raise AssertionError("allowed")
    except redis.ResponseError as refused:  # redis-py takes a NOPERM off the text
        assert error in str(refused) or isinstance(refused, redis.exceptions.NoPermissionError)
    assert is_there(session)
    assert stats(session.commands)["sessions_away"] == 0


def test_a_server_has_at_most_so_many_sessions(server, session, client):
    client.config_set("dlock.max-sessions", 1)
    with pytest.raises(redis.ResponseError, match="dlock.max-sessions"):
        Session(server)
    session.send()
    assert not session.is_answered()
    session.end()
    Session(server)


def test_without_memory_heartbeats_and_events_go_on_and_nothing_is_new(server, session, client):
    session.watch()
    client.config_set("maxmemory", 1)
    assert session.event() == ["changed", "lock", None]
    for new in (lambda: session.acquire("me", "PX", 1000), lambda: session.watch("other"),
                lambda: Session(server)):
        with pytest.raises(redis.ResponseError, match="OOM"):
            new()
    session.unwatch()
    client.config_set("maxmemory", 0)


# -- other servers --------------------------------------------------------------------------------


def demote(client):
    client.execute_command("REPLICAOF", "127.0.0.1", free_port())


def test_a_server_that_becomes_a_replica_sends_heartbeats_away_as_it_does_waiters(
        session, server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["you"])
    session.park()
    demote(lock.client)
    with pytest.raises(redis.ResponseError) as of_waiter:
        waiter.answer()
    with pytest.raises(redis.ResponseError) as of_session:
        session.read()
    assert str(of_session.value) == str(of_waiter.value)
    wait_until(lambda: sessions(lock.client) == 0, "the session to end")


@pytest.mark.parametrize("words", [
    ("DLOCK.SESSION", ID, "PX", 1000), ("DLOCK.SESSION", ID, "END"),
], ids=str)
def test_a_replica_has_no_sessions(server, start_replica, words):
    replica = start_replica(server).client()
    with pytest.raises(redis.exceptions.ReadOnlyError):
        replica.execute_command(*words)


def test_a_promoted_server_has_sessions_again(session, client):
    demote(client)
    wait_until(lambda: sessions(client) == 0, "all to end")
    client.execute_command("REPLICAOF", "NO", "ONE")
    assert Session(session.server, name=session.name).born > session.born


def at_once_master_again(client, *commands):
    """Before the server has done anything else about its demotion. The replies."""
    return in_one_turn(client, ("REPLICAOF", "127.0.0.1", free_port()),
                       ("REPLICAOF", "NO", "ONE"), *commands)[2:]


@pytest.mark.parametrize("words", NEED_A_SESSION, ids=str)
def test_no_session_is_found_after_a_demotion(server, client, words):
    Session(server, name=ID)
    with pytest.raises(redis.ResponseError, match="NOSESSION"):
        at_once_master_again(client, words)


def test_a_session_begins_anew_in_the_turn_of_a_demotion(session, client, lock):
    session.watch()
    assert session.event()[0] == "changed"
    [(born, events)] = at_once_master_again(
        client, ("DLOCK.SESSION", session.name, "PX", session.timeout_ms))
    assert (born > session.born, events) == (True, [])
    wait_until(lambda: stats(client)["events_unacknowledged"] == 0, "the old one to be forgotten")
    assert (sessions(client), stats(client)["watches"]) == (1, 0)


def test_after_a_demotion_no_wait_of_a_forgotten_session_is_served(session, client, lock):
    lock.acquire("me")
    session.wait("you")
    [released, fence] = at_once_master_again(
        client, ("DLOCK.RELEASE", "lock", "me"), ("DLOCK.ACQUIRE", "lock", "other", "PX", 60_000))
    assert released == 1 and fence > 0
    wait_until(lambda: sessions(client) == 0, "the session to end")
    assert (lock.info()["fence"], lock.info()["waiters"]) == (fence, 0)


def test_after_a_demotion_a_connection_has_a_new_session_of_its_own(server, client):
    """Its end ends what was acquired after the demotion, and nothing else."""
    holder = server.client()
    Lock(holder, "before").acquire("me", 60_000, "SESSION")
    at_once_master_again(holder, ("DLOCK.ACQUIRE", "after", "me", "PX", 60_000, "SESSION"))
    assert Lock(client, "before").info()["session"] == 0
    assert Lock(client, "after").info()["session"] != 0
    holder.connection_pool.disconnect()
    wait_until(lambda: Lock(client, "after").info() is None, "the connection to end")
    assert Lock(client, "before").info() is not None
    assert stats(client)["session_holds"] == 0


def test_a_restart_forgets_sessions(start_server):
    server = start_server("--appendonly", "yes")
    session = Session(server)
    server.restart()
    again = Session(server, name=session.name)
    assert again.born > session.born


def test_a_session_outlives_a_pause_in_which_it_cannot_be_heard(server, session, lock, clock):
    """CLIENT PAUSE ALL holds its heartbeats up."""
    fence = session.hold("me")
    pause_s = 10 * TIMEOUT_S
    in_one_turn(lock.client, ("CLIENT", "PAUSE", pause_s * 1000, "ALL"))
    session.connection.disconnect()
    heartbeat, competitor = Bare(server), Bare(server)
    heartbeat.send(f"DLOCK.SESSION {session.name} PX {session.timeout_ms}")
    competitor.send("DLOCK.ACQUIRE lock other PX 1000")
    for _ in range(3):
        clock.advance(TIMEOUT_S)
    clock.step(pause_s + 1)
    assert competitor.read() == [b"$-1"]
    assert (session.come_back(), lock.info()["fence"]) == ([], fence)
    assert stats(lock.client)["session_timeouts"] == 0
    heartbeat.close()
    competitor.close()


def test_a_heartbeat_that_the_server_had_no_time_to_read_counts(server, session, clock):
    """The server is busy past the end of the session, in a turn in which other work is due."""
    brief = Session(server, 10_000)
    slow, heartbeat = Bare(server), Bare(server)
    assert heartbeat.call("PING") == b"+PONG"
    send_in_two_turns(server, slow, ("DLOCK.WATCH", "lock", session.name), ("DEBUG", "SLEEP", 600))
    clock.wait_until_asleep()
    heartbeat.send(f"DLOCK.SESSION {brief.name} PX 10000")
    clock.advance(11)
    assert slow.read(4)[::3] == [b"+OK", b"+OK"]
    assert heartbeat.read() == [b"*2"]
    assert stats(session.commands)["session_timeouts"] == 0
    brief.end()
    slow.close()
    heartbeat.close()


def test_a_session_survives_the_flush_of_all_data(session, client):
    client.flushall()
    session.send()
    assert not session.is_answered()


def test_a_session_is_shown_shortened(session, lock):
    session.hold("me")
    session.wait("you")
    assert lock.info()["via"] == session.name[:8].encode()
    [waiter] = lock.queue()
    assert (waiter["via"], waiter["client"]) == (session.name[:8].encode(), 0)
    assert lock.info()["session"] == session.id
    session.go_away()
    assert lock.info()["session"] == 0
