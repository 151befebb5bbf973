"""Several independent servers: a majority decides, whatever the others do."""

import os
import random
import signal
import time

import pytest

from support.commands import Lock as Commands
from support.fake_server import SILENCE
from support.libdlock import Background, Event, State, Status, Told
from support.server import free_port, wait_until
from support.wall_clock import WallClock, build

LONG_IO_MS = 5000  # where an answer is expected
SHORT_IO_MS = 300  # where none is
SLACK_MS = 1000    # of a busy machine
MINUTE_US = 60_000_000


@pytest.fixture
def servers(start_server):
    return [start_server() for _ in range(5)]


@pytest.fixture
def connect(servers, connect):
    """The clients go before the servers do."""
    return connect


@pytest.fixture
def silent():
    """silent(server): it is there and says nothing, until awake(server)."""
    stopped = []

    def stop(*servers):
        for server in servers:
            os.kill(server.pid, signal.SIGSTOP)
            stopped.append(server)

    yield stop
    for server in stopped:
        if server.process is not None:
            os.kill(server.pid, signal.SIGCONT)


def awake(*servers):
    for server in servers:
        os.kill(server.pid, signal.SIGCONT)


def infos(servers, name="lock"):
    return [Commands(server.observer, name).info() for server in servers]


def tokens(servers, name="lock"):
    return [info and info["token"] for info in infos(servers, name)]


def take_everywhere(lock, servers):
    """The call itself waits for a majority only."""
    assert lock.acquire() == Status.OK, lock.error
    wait_until(lambda: tokens(servers) == [lock.token] * len(servers), "all to have granted it")


def hold_on(servers, name="lock", token="somebody", lease_ms=600_000):
    for server in servers:
        assert Commands(server.observer, name).acquire(token, lease_ms) > 0


# -- all is well ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_free_lock_is_taken_on_all_of_them_and_given_back(connect, servers, count):
    lock = connect(servers[:count], io_timeout_ms=LONG_IO_MS).lock()
    take_everywhere(lock, servers[:count])
    assert lock.state == State.HELD
    assert lock.release() == Status.OK
    wait_until(lambda: tokens(servers) == [None] * 5, "all to have given it back")


def test_a_held_lock_is_busy_and_then_a_timeout(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    assert dlock.lock().acquire() == Status.OK
    other = dlock.lock()
    assert other.acquire() == Status.BUSY
    assert other.error == "5 busy"
    assert other.acquire(100) == Status.TIMEOUT
    assert other.timings.attempts > 1


def test_who_waits_gets_it_when_it_is_given_back(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    holder, waiter = dlock.lock(), dlock.lock()
    holder.acquire()
    before = dlock.stats().commands
    waiting = Background(waiter.acquire, 60_000)
    wait_until(lambda: dlock.stats().commands >= before + 10, "a second attempt")
    fence = holder.fence
    assert holder.release() == Status.OK
    assert waiting.result() == Status.OK
    assert waiter.fence > fence


def test_extend_moves_the_end_on_all_of_them(connect, servers):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=10_000)
    take_everywhere(lock, servers)
    assert lock.extend(600_000) == Status.OK
    wait_until(lambda: all(Commands(server.observer).ttl() > 500_000 for server in servers),
               "all to have extended it")
    assert lock.remaining_ms > 500_000


def test_ping_needs_a_majority(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    assert dlock.ping(LONG_IO_MS) == Status.OK
    for server in servers[:2]:
        server.kill()
    assert dlock.ping(LONG_IO_MS) == Status.OK
    servers[2].kill()
    assert dlock.ping(LONG_IO_MS) == Status.NO_QUORUM


def test_the_servers_may_be_given_by_name(connect, servers):
    urls = [f"redis://localhost:{server.port}" for server in servers]
    lock = connect(urls, io_timeout_ms=LONG_IO_MS, connect_timeout_ms=LONG_IO_MS).lock()
    take_everywhere(lock, servers)


def test_a_name_that_is_not_known_harms_nobody_else(connect, servers):
    urls = [f"redis://127.0.0.1:{server.port}" for server in servers[:4]]
    lock = connect(["redis://no-such-host.invalid", *urls], io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK


# -- some are not there ---------------------------------------------------------------------------


@pytest.mark.parametrize("dead", [1, 2])
def test_a_minority_may_be_dead(connect, servers, dead):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    for server in servers[:dead]:
        server.kill()
    lock = dlock.lock()
    for _ in range(5):
        assert lock.acquire() == Status.OK, lock.error
        assert lock.extend() == Status.OK
        assert lock.release() == Status.OK
    wait_until(lambda: tokens(servers[dead:]) == [None] * (5 - dead), "all to have given it back")


@pytest.mark.alone
@pytest.mark.parametrize("count", [1, 2])
def test_a_minority_may_be_silent(connect, servers, silent, count):
    dlock = connect(servers, io_timeout_ms=SHORT_IO_MS)
    lock = dlock.lock()
    assert lock.acquire() == Status.OK  # so that there are connections
    assert lock.release() == Status.OK
    silent(*servers[:count])
    for _ in range(5):
        status, took_ms = lock.timed_acquire()
        assert status == Status.OK, lock.error
        assert took_ms < SHORT_IO_MS + SLACK_MS
        assert lock.extend() == Status.OK
        assert lock.release() == Status.OK


@pytest.mark.alone
def test_the_silent_are_left_alone_after_a_while(connect, servers, silent):
    """Not everybody waits for them again and again."""
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock()
    silent(*servers[:2])
    took = []
    for _ in range(40):
        status, took_ms = lock.timed_acquire()
        assert status == Status.OK
        assert lock.release() == Status.OK
        took.append(took_ms)
    assert sorted(took)[20] < SHORT_IO_MS / 2


def test_who_was_left_alone_is_used_again(connect, servers):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    port = servers[0].port
    servers[0].kill()
    for _ in range(10):
        assert lock.acquire() == Status.OK
        lock.release()
    servers[0].start(port)

    def is_used_again():
        assert lock.acquire() == Status.OK
        token = tokens(servers[:1])
        lock.release()
        return token[0] is not None

    wait_until(is_used_again, "a vote of the server that came back")


def test_who_was_left_alone_is_asked_when_it_is_up_to_it(connect, servers):
    lock = connect(servers[:3], io_timeout_ms=LONG_IO_MS).lock()
    port = servers[0].port
    servers[0].kill()
    for _ in range(50):
        assert lock.acquire() == Status.OK
        lock.release()
    servers[0].start(port)
    servers[1].kill()
    assert lock.acquire() == Status.OK, lock.error


@pytest.mark.alone
@pytest.mark.parametrize("wait_ms", [0, 500])
def test_too_many_dead(connect, servers, wait_ms):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    for server in servers[:3]:
        server.kill()
    lock = dlock.lock()
    status, took_ms = lock.timed_acquire(wait_ms)
    assert status == Status.NO_QUORUM
    assert wait_ms <= took_ms < wait_ms + SLACK_MS
    assert lock.error.startswith("2 ok, 3 unreachable: 127.0.0.1:")
    assert f"127.0.0.1:{servers[0].port}: Connection refused" in lock.error
    assert tokens(servers[3:]) == [None, None]


@pytest.mark.alone
@pytest.mark.parametrize("wait_ms", [0, 500])
def test_too_many_silent(connect, servers, silent, wait_ms):
    dlock = connect(servers, io_timeout_ms=SHORT_IO_MS)
    silent(*servers[:3])
    lock = dlock.lock()
    status, took_ms = lock.timed_acquire(wait_ms)
    assert status == Status.NO_QUORUM
    assert took_ms < wait_ms + SHORT_IO_MS + SLACK_MS
    assert "2 ok, 3 unanswered" in lock.error
    assert "no answer in time" in lock.error
    wait_until(lambda: tokens(servers[3:]) == [None, None], "the undoing")


def test_all_come_back_within_the_wait(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    ports = [server.port for server in servers]
    for server in servers:
        server.kill()
    waiting = Background(dlock.lock().acquire, 60_000)
    assert waiting.is_running()
    for server, port in zip(servers[:3], ports):
        server.start(port)
    assert waiting.result() == Status.OK


def test_a_lasting_failure_of_a_majority_ends_the_wait_at_once(connect, servers):
    for server in servers[:3]:
        server.observer.config_set("requirepass", "hunter2")
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    status, took_ms = lock.timed_acquire(60_000)
    assert status == Status.REFUSED
    assert took_ms < 10_000
    assert "2 ok, 3 failed" in lock.error and "NOAUTH" in lock.error
    assert tokens(servers[3:]) == [None, None]


def test_no_cause_has_a_password_in_it(connect):
    urls = [f"redis://app:hunter2@127.0.0.1:{free_port()}" for _ in range(3)]
    lock = connect(urls).lock()
    assert lock.acquire() == Status.NO_QUORUM
    assert "unreachable" in lock.error and "hunter2" not in lock.error


# -- votes ----------------------------------------------------------------------------------------


def test_a_minority_of_others_does_not_matter(connect, servers):
    hold_on(servers[:2])
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire() == Status.OK
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
    assert tokens(servers) == [b"somebody"] * 2 + [None] * 3


def test_a_split_vote_leaves_nothing_behind(connect, servers):
    hold_on(servers[:2], token="one")
    hold_on(servers[2:3], token="another")
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire() == Status.BUSY
    assert lock.error == "2 ok, 3 busy"
    assert tokens(servers) == [b"one", b"one", b"another", None, None]


def test_half_of_an_even_number_is_no_majority(connect, servers):
    hold_on(servers[:2])
    lock = connect(servers[:4], io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire() == Status.BUSY
    assert tokens(servers[2:4]) == [None, None]


def test_busy_and_dead_together(connect, servers):
    hold_on(servers[:2])
    servers[4].kill()
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire() == Status.NO_QUORUM
    dead = f"127.0.0.1:{servers[4].port}"
    assert lock.error == f"2 ok, 2 busy, 1 unreachable: {dead}: Connection refused"
    assert tokens(servers[2:4]) == [None, None]
    servers[3].kill()
    hold_on(servers[2:3])
    assert lock.acquire(200) == Status.TIMEOUT  # a majority says so


def test_a_split_vote_is_decided_when_somebody_gives_way(connect, servers):
    hold_on(servers[:3], lease_ms=400)
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire(60_000) == Status.OK
    assert tokens(servers).count(lock.token) >= 3


def test_extend_needs_a_majority_that_still_holds_it(connect, servers):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    take_everywhere(lock, servers)
    for server in servers[:2]:
        server.observer.delete("lock")
    assert lock.extend() == Status.OK
    servers[2].observer.delete("lock")
    assert lock.extend() == Status.LOST
    assert lock.error == "2 ok, 3 not held"
    assert lock.state == State.GONE


def test_an_extension_that_is_not_known_keeps_what_is_certain(connect, servers):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=60_000)
    take_everywhere(lock, servers)
    for server in servers[:3]:
        server.kill()
    assert lock.extend(600_000) == Status.NO_QUORUM
    assert 0 < lock.remaining_ms <= 60_000
    assert lock.state == State.HELD


def test_a_release_of_what_a_majority_has_lost(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    lock = dlock.lock()
    take_everywhere(lock, servers)
    for server in servers[:2]:
        server.observer.delete("lock")
    assert lock.release() == Status.OK
    take_everywhere(lock, servers)
    for server in servers[:3]:
        server.observer.delete("lock")
    assert lock.release() == Status.LOST
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_a_release_that_too_few_hear_goes_on_in_the_background(connect, servers):
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock(lease_ms=600_000)
    take_everywhere(lock, servers)
    ports = [server.port for server in servers]
    for server in servers[:3]:
        server.kill()
    assert lock.release() == Status.NO_QUORUM
    assert lock.state == State.FREE
    assert tokens(servers[3:]) == [None, None]
    servers[0].start(ports[0])


@pytest.mark.alone
def test_a_node_that_was_silent_is_released_when_it_wakes_up(connect, servers, silent):
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock(lease_ms=600_000)
    take_everywhere(lock, servers)
    silent(servers[0])
    assert lock.release() == Status.OK
    awake(servers[0])
    wait_until(lambda: tokens(servers) == [None] * 5, "the release to be heard")


@pytest.mark.alone
def test_a_node_that_grants_too_late_is_released_too(connect, servers, silent):
    silent(*servers[:2])
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock(lease_ms=600_000)
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    awake(*servers[:2])
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_late_grants_of_a_failed_acquire_are_undone(connect, servers, silent):
    silent(*servers[:3])
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock(lease_ms=600_000)
    assert lock.acquire(1000) == Status.NO_QUORUM
    awake(*servers[:3])
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_after_doubt_the_next_attempt_has_another_token(connect, servers, silent):
    """What is under way for the first one must not give back the second one's grant."""
    silent(*servers[:3])
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock(lease_ms=600_000)
    waiting = Background(lock.acquire, 60_000)
    wait_until(lambda: any(b"~2" in (token or b"") for token in tokens(servers[3:])),
               "the second attempt")
    awake(*servers[:3])
    assert waiting.result() == Status.OK
    assert b"~" in lock.token
    held = tokens(servers).count(lock.token)
    assert held >= 3
    assert lock.release() == Status.OK
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_a_node_restarted_empty_in_between(connect, servers):
    """It has forgotten the lock, and gives it to another; the majority has not."""
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    lock, other = dlock.lock(), dlock.lock()
    take_everywhere(lock, servers)
    port = servers[0].port
    servers[0].kill()
    servers[0].start(port)
    assert other.acquire() == Status.BUSY
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
    fence = lock.fence
    assert other.acquire() == Status.OK
    assert other.fence > fence


def test_a_canceled_wait_leaves_nothing_behind(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    hold_on(servers[:3])
    lock = dlock.lock()
    waiting = Background(lock.acquire, -1)
    wait_until(lambda: dlock.stats().commands >= 10, "a second attempt")
    lock.cancel()
    assert waiting.result() == Status.CANCELED
    wait_until(lambda: tokens(servers) == [b"somebody"] * 3 + [None] * 2, "nothing to be left")


def test_a_cancel_does_not_wait_for_the_silent(connect, servers, silent):
    silent(*servers[:3])
    lock = connect(servers, io_timeout_ms=60_000).lock()
    waiting = Background(lock.acquire, -1)
    assert waiting.is_running()
    lock.cancel()
    assert waiting.result(20) == Status.CANCELED


def test_a_silent_node_does_not_eat_a_short_lease(connect, servers, silent):
    lock = connect(servers, io_timeout_ms=60_000).lock(lease_ms=3000)
    silent(servers[0])
    assert lock.acquire() == Status.OK, lock.error
    assert lock.remaining_ms > 0


# -- fences ---------------------------------------------------------------------------------------


def take_turn(lock, fences):
    assert lock.acquire(60_000) == Status.OK, lock.error
    fences.append(lock.fence)
    assert lock.release() == Status.OK, lock.error


def test_fences_rise_whichever_majority_grants(connect, servers):
    """The clocks of the nodes are minutes apart, and every time another two are left out."""
    for minutes, server in enumerate(servers):
        fence = Commands(server.observer, "clock").acquire("me") + minutes * MINUTE_US
        Commands(server.observer, "clock").acquire("me", 10_000, "FENCE", fence)
    clients = [connect(servers, io_timeout_ms=LONG_IO_MS) for _ in range(3)]
    locks, fences = [client.lock() for client in clients], []
    chance = random.Random(1)
    for i in range(60):
        out = chance.sample(servers, 2)
        hold_on(out)
        take_turn(locks[i % 3], fences)
        for server in out:
            assert Commands(server.observer).release("somebody") == 1
    assert all(a < b for a, b in zip(fences, fences[1:]))


def test_fences_rise_while_nodes_die_and_come_back(connect, start_server):
    servers = [start_server("--appendonly", "yes", "--appendfsync", "always") for _ in range(5)]
    ports = [server.port for server in servers]
    clients = [connect(servers, io_timeout_ms=LONG_IO_MS) for _ in range(2)]
    locks, fences = [client.lock() for client in clients], []
    chance = random.Random(2)
    for round_number in range(10):
        out = chance.sample(range(5), chance.choice([1, 2]))
        for i in out:
            servers[i].kill()
        for turn in range(20):
            take_turn(locks[turn % 2], fences)
        for i in out:
            servers[i].start(ports[i])
    assert len(fences) == 200
    assert all(a < b for a, b in zip(fences, fences[1:]))


def test_one_round_is_enough_while_the_nodes_agree(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    lock, fences = dlock.lock(), []
    for _ in range(50):
        take_turn(lock, fences)
    commands = dlock.stats().commands
    assert commands < 50 * 10 + 100, commands  # 10 each; some were raised, on a slow machine
    assert all(a < b for a, b in zip(fences, fences[1:]))


def test_a_majority_counts_on_from_the_fence_before_it_is_told(connect, servers):
    ahead = Commands(servers[0].observer, "clock").acquire("me") + 4 * MINUTE_US
    Commands(servers[0].observer, "clock").acquire("me", 10_000, "FENCE", ahead)
    for server in servers[3:]:
        server.kill()  # so that nobody else can make up the majority
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire() == Status.OK
    assert lock.fence > ahead
    assert all(info["fence"] >= lock.fence for info in infos(servers[:3]))


def test_a_client_whose_clock_is_an_hour_ahead_takes_turns(connect, start_server, tmp_path):
    """Nodes refuse the fence that such a client would ask for."""
    library = build(tmp_path)
    servers = []
    for number in range(3):
        clock = WallClock(library, tmp_path / str(number))
        clock.step(-3600)
        servers.append(start_server(wall_clock=clock))
    clients, fences = [connect(servers, io_timeout_ms=LONG_IO_MS) for _ in range(2)], []
    locks = [client.lock() for client in clients]
    for turn in range(10):
        take_turn(locks[turn % 2], fences)
    assert all(a < b for a, b in zip(fences, fences[1:]))


# -- keeping it -----------------------------------------------------------------------------------


def keep(connect, servers, lease_ms=600_000, renew_every_ms=100, **options):
    """A lock that is renewed, and what its client was told."""
    told = Told()
    dlock = connect(servers, on_event=told, **{"io_timeout_ms": LONG_IO_MS, **options})
    lock = dlock.lock(lease_ms=lease_ms, renew_every_ms=renew_every_ms)
    take_everywhere(lock, servers)
    return lock, told


def wait_for_renewals(lock, count=3):
    enough = lock.client.stats().renewed + count
    wait_until(lambda: lock.client.stats().renewed >= enough, "renewals")


def test_renewal_goes_on_without_a_server_that_died_and_forgot(connect, servers):
    lock, told = keep(connect, servers[:3])
    fence = lock.fence
    wait_for_renewals(lock)
    servers[0].kill()
    wait_for_renewals(lock)
    servers[0].start(servers[0].port)
    wait_for_renewals(lock)
    assert tokens(servers[:3]) == [None, lock.token, lock.token]
    assert lock.fence == fence and told.events() == [Event.ACQUIRED]
    assert lock.release() == Status.OK


def test_a_silent_server_does_not_use_up_the_lease(connect, servers, silent):
    """A majority has answered long before its I/O timeout is over."""
    lock, told = keep(connect, servers[:3], lease_ms=3000, renew_every_ms=300,
                      io_timeout_ms=20_000)
    wait_for_renewals(lock)
    silent(servers[0])
    time.sleep(3.2)
    assert Event.LOST not in told.events()
    awake(servers[0])


def test_a_loss_of_the_majority_is_told_before_the_end(connect, servers):
    lock, told = keep(connect, servers[:3], lease_ms=2000, io_timeout_ms=1000)
    wait_for_renewals(lock)
    for server in servers[:2]:
        server.kill()
    end = time.clock_gettime(time.CLOCK_BOOTTIME) + 2
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert told.events() == [Event.ACQUIRED, Event.SUSPECT, Event.LOST]
    assert told.find(Event.SUSPECT)[2] == Status.NO_QUORUM
    assert told.find(Event.LOST)[3] < end
    assert lock.state == State.GONE and lock.is_lost_by_fd()


# -- many at once ---------------------------------------------------------------------------------


def test_of_many_everyone_gets_a_turn(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS, connect_timeout_ms=LONG_IO_MS)
    locks = [dlock.lock() for _ in range(32)]
    held, most, fences = [0], [0], []

    def take(lock):
        for _ in range(3):
            status = lock.acquire(100_000)
            if status != Status.OK:
                return status, lock.error
            held[0] += 1
            most[0] = max(most[0], held[0])
            fences.append(lock.fence)
            time.sleep(0.003)
            held[0] -= 1
            lock.release()
        return status, ""

    results = [task.result(110) for task in [Background(take, lock) for lock in locks]]
    assert results == [(Status.OK, "")] * 32
    assert most[0] == 1
    assert fences == sorted(set(fences))
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_a_fake_node_that_talks_nonsense_is_one_vote_less(connect, servers, fake_server):
    mad = fake_server(lambda words: b"+OK\r\n")
    lock = connect([mad, *servers[:2]], io_timeout_ms=LONG_IO_MS).lock()
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    servers[1].kill()
    assert lock.acquire() == Status.NO_QUORUM
    assert lock.error.startswith("1 ok, 1 un") and "1 failed" in lock.error


@pytest.mark.alone
def test_those_who_did_not_answer_are_told_behind_the_request(connect, servers, fake_server):
    mute = fake_server(lambda words: SILENCE)
    lock = connect([mute, *servers[:1]], io_timeout_ms=SHORT_IO_MS).lock()
    assert lock.acquire() == Status.NO_QUORUM
    wait_until(lambda: len(mute.asked("DLOCK.RELEASE")) >= 1, "the release behind the acquire")
    assert [words[0] for words in mute.requests][:2] == [b"DLOCK.ACQUIRE", b"DLOCK.RELEASE"]
    assert mute.requests[0][2] == mute.requests[1][2] == lock.token
