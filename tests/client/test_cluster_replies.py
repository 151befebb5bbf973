"""What nodes of a cluster may reply: maps, redirections, and what makes no sense."""

import time

import pytest

from support.cluster import slot_of, url_of
from support.fake_server import CUT, SILENCE, resp
from support.libdlock import Background, Event, Status, Told
from support.server import free_port, wait_until

PATIENCE_MS = 20_000  # who waits that long for a node does not end in time
PAUSE_MS, REDIRECTIONS_MAX = 100, 5  # of cluster.c


def slots(*ranges):
    """A reply to CLUSTER SLOTS: of (first, last, host, port)."""
    return resp([[first, last, [host, port, "id"]] for first, last, host, port in ranges])


@pytest.fixture
def fake_node(fake_server):
    """fake_node(): has all slots, as "127.0.0.1", and grants everything; map, an answer, and reply,
    a function of the command, may be changed."""

    def make(host="127.0.0.1"):
        def answer(words):
            if words[0] == b"CLUSTER":
                return node.map
            if words[0] == b"ASKING":
                return b"+OK\r\n"
            return resp(node.reply(words))
        node = fake_server(answer)
        node.map = slots((0, 16383, host, node.port))
        node.reply = lambda words: 1
        return node
    return make


@pytest.fixture
def client_at(connect):
    return lambda *nodes, **options: connect(url_of(*nodes), **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "", "?", None])
def test_a_host_that_a_node_does_not_know_is_the_one_that_was_asked(client_at, fake_node, host):
    node = fake_node(host)
    client_at(node).hold()
    assert len(node.asked("DLOCK.ACQUIRE")) == 1


@pytest.mark.parametrize("garbage", [
    b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*0\r\n", b"*-1\r\n", b"*1\r\n:1\r\n", b"*1\r\n*0\r\n",
    resp([[0, 16384, ["127.0.0.1", 1]]]), resp([[-1, 5, ["127.0.0.1", 1]]]),
    resp([[5, 4, ["127.0.0.1", 1]]]), resp([[0, 5, ["127.0.0.1", 0]]]),
    resp([[0, 5, ["127.0.0.1", 65536]]]), resp([[0, 5, ["127.0.0.1"]]]), resp([[0, 5]]),
    resp([[0, 5, [[], 1]]]), resp([["0", "5", ["127.0.0.1", 1]]]),
    resp([[0, 16383, ["127.0.0.1", 1]], [0, 5]])], ids=repr)
def test_what_makes_no_sense_is_no_map(client_at, fake_node, garbage):
    mad, good = fake_node(), fake_node()
    mad.map = garbage
    lock = client_at(mad).lock()
    assert lock.acquire() == Status.UNREACHABLE
    assert f"127.0.0.1:{mad.port}: " in lock.error
    assert not mad.asked("DLOCK.ACQUIRE")
    assert client_at(mad, good).lock().acquire() == Status.OK
    assert len(good.asked("DLOCK.ACQUIRE")) == 1


@pytest.mark.parametrize("silence", [SILENCE, CUT], ids=["silent", "cut"])
def test_a_node_without_an_answer_does_not_hold_up_the_others(client_at, fake_node, silence):
    bad, good = fake_node(), fake_node()
    bad.map = silence
    status, took_ms = client_at(bad, good).lock().timed_acquire()
    assert status == Status.OK
    assert took_ms < PATIENCE_MS


def test_no_node_is_there(client_at):
    port = free_port()
    lock = client_at(port).lock()
    status, took_ms = lock.timed_acquire(100)
    assert status == Status.UNREACHABLE
    assert f"127.0.0.1:{port}" in lock.error and "refused" in lock.error
    assert took_ms >= 100


def test_who_is_sent_in_circles_gives_up(client_at, fake_node):
    one, other = fake_node(), fake_node()
    one.reply = lambda words: Exception(f"MOVED 1 127.0.0.1:{other.port}")
    other.reply = lambda words: Exception(f"MOVED 1 127.0.0.1:{one.port}")
    lock = client_at(one).lock()
    assert lock.acquire() == Status.REFUSED
    assert "MOVED" in lock.error and "127.0.0.1:" in lock.error
    asked = one.asked("DLOCK.ACQUIRE") + other.asked("DLOCK.ACQUIRE")
    assert len(asked) == REDIRECTIONS_MAX + 1
    status, took_ms = lock.timed_acquire(100)
    assert status == Status.REFUSED
    assert took_ms >= 100


def test_a_host_that_a_redirection_does_not_name_is_the_one_that_was_asked(client_at, fake_node):
    one, other = fake_node(), fake_node()
    one.reply = lambda words: Exception(f"MOVED 1 :{other.port}")
    client_at(one).hold()
    assert len(other.asked("DLOCK.ACQUIRE")) == 1


def test_a_bad_redirection_is_an_answer_that_makes_no_sense(client_at, fake_node):
    node = fake_node()
    node.reply = lambda words: Exception("MOVED to the country")
    lock = client_at(node).lock()
    assert lock.acquire(10_000) == Status.PROTOCOL
    assert lock.error == f"127.0.0.1:{node.port}: MOVED to the country"


def test_ask_is_for_this_once(client_at, fake_node):
    here, there = fake_node(), fake_node()
    here.reply = lambda words: Exception(f"ASK {slot_of('lock')} 127.0.0.1:{there.port}")
    there.reply = lambda words: 1 if b"WAIT" in words else None  # held by another, for a moment
    lock = client_at(here).hold(wait_ms=30_000)
    commands = [words[0] for words in there.requests]
    assert commands == [b"ASKING", b"DLOCK.ACQUIRE"] * 2
    assert there.requests[3][5] == b"WAIT" and 20_000 < int(there.requests[3][6]) <= 30_000
    here.reply = lambda words: 1
    assert lock.release() == Status.OK
    assert len(here.asked("DLOCK.RELEASE")) == 1
    assert not there.asked("DLOCK.RELEASE")


def test_a_wait_that_is_redirected_goes_on_for_what_is_left_of_it(client_at, fake_node):
    here, there = fake_node(), fake_node()

    def move_after_a_while(words):
        if b"WAIT" not in words:
            return None
        time.sleep(0.1)
        return Exception(f"MOVED {slot_of('lock')} 127.0.0.1:{there.port}")
    here.reply = move_after_a_while
    client_at(here).hold(wait_ms=30_000)
    [words] = there.asked("DLOCK.ACQUIRE")
    assert int(words[words.index(b"WAIT") + 1]) <= 30_000 - 100


def test_moved_is_remembered(client_at, fake_node):
    here, there = fake_node(), fake_node()
    here.reply = lambda words: Exception(f"MOVED {slot_of('lock')} 127.0.0.1:{there.port}")
    here.map = there.map = slots((0, 16383, "127.0.0.1", here.port))
    lock = client_at(here).lock()
    for _ in range(5):
        assert lock.acquire() == Status.OK
        assert lock.release() == Status.OK
    assert len(here.asked("DLOCK.ACQUIRE")) <= 2  # and once more if the old map was read again


def test_the_map_is_not_asked_for_too_often(client_at, fake_node):
    node = fake_node()
    node.reply = lambda words: Exception("TRYAGAIN later")
    dlock = client_at(node, spin_min_ms=1, spin_random_ms=1)
    begin = time.monotonic()
    waiting = [Background(dlock.lock().acquire, 3000) for _ in range(8)]
    assert {each.result() for each in waiting} == {Status.REFUSED}
    pauses = (time.monotonic() - begin) * 1000 / PAUSE_MS
    # Without a map each of the first asks for one.
    assert 0 < len(node.asked("CLUSTER")) <= 8 + 1 + pauses < len(node.asked("DLOCK.ACQUIRE"))


def test_nodes_that_nobody_names_any_more_are_forgotten(client_at, fake_node):
    """More are named than there is room for, before there is another map. Nobody listens there."""
    node, other = fake_node(), fake_node()
    ports = iter(range(20_000, 30_000))  # an acquire may try two
    lock = client_at(node).hold()
    lock.release()

    def send_on(words):
        if words[0] != b"DLOCK.ACQUIRE":
            return 1
        return Exception(f"ASK 1 127.0.0.2:{next(ports)}")
    node.reply, node.map = send_on, resp(Exception("ERR not now"))
    for _ in range(2500):
        assert lock.acquire() == Status.UNREACHABLE
    node.reply = lambda words: Exception(f"ASK 1 127.0.0.1:{other.port}")
    assert lock.acquire(1000) == Status.OK


def test_sessions_of_a_node_that_is_away_do_not_hold_up_renewals_elsewhere(connect, fake_node):
    away, there = fake_node(), fake_node()
    half = 8192
    away.map = there.map = slots((0, half - 1, "127.0.0.1", away.port),
                                 (half, 16383, "127.0.0.1", there.port))
    names = [f"lock:{i}" for i in range(200)]
    at_away = [name for name in names if slot_of(name) < half][:14]
    told, answer = Told(), away.answer
    dlock = connect(url_of(there), on_event=told)
    for name in at_away:
        dlock.hold(name, session=True, lease_ms=60_000)
    elsewhere = next(name for name in names if slot_of(name) >= half)
    kept = dlock.hold(elsewhere, lease_ms=60_000, renew_every_ms=50)
    away.answer = lambda words: SILENCE
    away.break_connections()
    wait_until(lambda: all(told.find(Event.SUSPECT, name) for name in at_away),
               "that each is in question")
    dlock.wait_for_renewals(10, timeout=PATIENCE_MS / 2000)
    away.answer = answer
    assert Event.LOST not in told.events(elsewhere)
    assert kept.release() == Status.OK


def test_the_login_is_that_of_all_nodes(fake_server, connect):
    servers = []

    def answer(words):
        if words[0] == b"CLUSTER":
            return slots((0, 16383, "127.0.0.1", servers[1].port))
        return b"+OK\r\n" if words[0] == b"AUTH" else resp(1)
    servers += [fake_server(answer), fake_server(answer)]
    connect(url_of(servers[0], login="me:secret@")).hold()
    for server in servers:
        assert server.asked("AUTH") == [[b"AUTH", b"me", b"secret"]]


def test_a_release_behind_a_late_acquire_asks_as_well(client_at, fake_node):
    """Without ASKING the node would send it back, and the late ACQUIRE would keep the lock."""
    here, there = fake_node(), fake_node()
    here.reply = lambda words: Exception(f"ASK {slot_of('lock')} 127.0.0.1:{there.port}")
    answer = there.answer
    there.answer = lambda words: SILENCE if words[0] == b"DLOCK.ACQUIRE" else answer(words)
    lock = client_at(here, io_timeout_ms=300).lock(lease_ms=60_000)
    assert lock.acquire() == Status.IN_DOUBT
    wait_until(lambda: len(there.asked("DLOCK.RELEASE")) >= 2, "a RELEASE on each connection")
    commands = [words[0] for words in list(there.requests)]
    releases = [i for i, command in enumerate(commands) if command == b"DLOCK.RELEASE"]
    assert all(commands[i - 1] == b"ASKING" for i in releases), commands
