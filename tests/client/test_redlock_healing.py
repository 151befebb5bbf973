"""A lock that is renewed lives on when servers forget it, as long as a majority does not."""

import time

import pytest

from support.commands import Lock as Commands
from support.fake_server import resp
from support.libdlock import Background, Event, State, Status
from support.redlock import (LEASE_MS, LONG_IO_MS, MINUTE_US, give_back, infos, keep, served,
                             take_everywhere, tokens)
from support.server import wait_until
from support.turn import in_one_turn


def wait_until_all_have_it(lock, servers):
    wait_until(lambda: tokens(servers) == [lock.token] * len(servers), "all to have the lock")


# -- healed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 5])
def test_a_renewed_lock_survives_a_rolling_restart_of_all_servers(connect, servers, count):
    """None of them has it on disk."""
    used = servers[:count]
    lock, told = keep(connect, used)
    token, fence = lock.token, lock.fence
    rival = connect(used, io_timeout_ms=LONG_IO_MS).lock()
    wait_until_all_have_it(lock, used)
    for server in used:
        server.crash()
        wait_until(lambda: tokens([server]) == [token], "that server to have it again")
        assert rival.acquire() == Status.BUSY
    assert (lock.token, lock.fence, lock.state) == (token, fence, State.HELD)
    assert told.events() == [Event.ACQUIRED]
    assert all(info["fence"] >= fence for info in infos(used))
    assert lock.release() == Status.OK
    assert rival.acquire(60_000) == Status.OK
    assert rival.fence > fence


def test_a_lock_is_renewed_while_a_server_is_away(connect, servers):
    lock, told = keep(connect, servers[:3])
    servers[0].kill()
    lock.client.wait_for_renewals(3)
    servers[0].start(servers[0].port)
    wait_until_all_have_it(lock, servers[:3])
    assert told.events() == [Event.ACQUIRED]
    assert lock.release() == Status.OK
    wait_until(lambda: tokens(servers[:3]) == [None] * 3, "nothing to be left")


def keep_on_disk(start_server):
    """Three servers: after a restart each keeps its locks for a lease."""
    return [start_server("--appendonly", "yes", "--appendfsync", "always") for _ in range(3)]


def release_while_away(lock, used):
    """The client knows that the server is away: its request is not sent, and so not in doubt."""
    used[0].kill()
    other = lock.client.lock("other")
    for _ in range(3):
        assert other.acquire(60_000) == Status.OK
        assert other.release() == Status.OK
    assert lock.release() == Status.OK
    used[0].start(used[0].port)
    wait_until(lambda: tokens(used) == [None] * 3, "nothing to be left")


@pytest.mark.parametrize("is_handed_on", [False, True])
def test_a_release_reaches_a_server_that_was_away(connect, start_server, is_handed_on):
    used = keep_on_disk(start_server)
    dlock = connect(used, hotspot_hand_on=3, io_timeout_ms=LONG_IO_MS)
    dlock.hotspot_add("lock")
    lock = dlock.hold(lease_ms=LEASE_MS, wait_ms=60_000)
    wait_until_all_have_it(lock, used)
    if is_handed_on:
        second = dlock.lock(lease_ms=LEASE_MS)
        waiting = dlock.wait_in_line(second)
        assert lock.release() == Status.OK
        assert waiting.result() == Status.OK and dlock.stats().hand_ons == 1
        lock = second
    release_while_away(lock, used)


def test_a_release_of_a_server_that_was_away_reaches_names_that_were_left(connect, start_server):
    """The extension has found there that one of two names was deleted."""
    used = keep_on_disk(start_server)
    lock = connect(used, io_timeout_ms=LONG_IO_MS).lock(["lock", "deleted"], lease_ms=LEASE_MS)
    assert lock.acquire(60_000) == Status.OK
    wait_until_all_have_it(lock, used)
    used[0].observer.delete("deleted")
    used[1].observer.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    extending = Background(lock.extend)
    wait_until(lambda: served(used[0], "extend") == 2, "the extension")
    used[1].observer.execute_command("CLIENT", "UNPAUSE")
    assert extending.result() == Status.OK
    release_while_away(lock, used)


def test_a_healed_server_counts_on_from_the_fence(connect, servers):
    """The fence is ahead of the clock of a server that starts anew."""
    used = servers[:3]
    ahead = Commands(used[0].observer, "clock").acquire("me") + 3 * MINUTE_US
    for server in used:
        Commands(server.observer, "clock").acquire("me", 10_000, "FENCE", ahead)
    lock, _ = keep(connect, used)
    assert lock.fence > ahead
    wait_until_all_have_it(lock, used)
    used[0].crash()
    wait_until_all_have_it(lock, used)
    assert infos(used[:1])[0]["fence"] >= lock.fence
    assert Commands(used[0].observer, "another").acquire("me") > lock.fence


def test_a_healed_server_is_a_vote_of_the_next_renewal(connect, servers):
    """It takes the place of another one."""
    lock, told = keep(connect, servers[:3])
    wait_until_all_have_it(lock, servers[:3])
    servers[0].crash()
    wait_until_all_have_it(lock, servers[:3])
    servers[1].kill()
    lock.client.wait_for_renewals(3)
    assert Event.LOST not in told.events()


def test_a_slow_server_that_forgot_is_healed_too(connect, servers, fake_server):
    """A majority has replied long before it says that it does not hold the lock."""
    def reply_late(words):
        time.sleep(0.1)
        return resp(time.time_ns() // 1000 if words[0] == b"DLOCK.ACQUIRE" else 0)

    slow = fake_server(reply_late)
    lock, _ = keep(connect, [*servers[:2], slow])
    wait_until(lambda: len(slow.asked("DLOCK.ACQUIRE")) > 1, "it to be asked again")
    words = slow.asked("DLOCK.ACQUIRE")[1]
    assert words[2] == lock.token
    assert int(words[words.index(b"FENCE") + 1]) == lock.fence


def test_a_server_that_granted_it_to_another_is_healed_after_that(connect, servers):
    lock, told = keep(connect, servers[:3])
    wait_until_all_have_it(lock, servers[:3])
    in_one_turn(servers[0].observer, ("DEL", "lock"),
                ("DLOCK.ACQUIRE", "lock", "somebody", "PX", LEASE_MS))
    lock.client.wait_for_renewals(3)
    assert tokens(servers[:1]) == [b"somebody"]
    give_back(servers[:1])
    wait_until_all_have_it(lock, servers[:3])
    assert told.events() == [Event.ACQUIRED]


# -- not healed -----------------------------------------------------------------------------------


def test_a_server_is_no_vote_of_the_renewal_that_would_heal_it(connect, servers):
    """Of three one is dead and one has forgotten the lock. The third alone cannot prove that nobody
    else held the lock meanwhile."""
    lock, told = keep(connect, servers[:3], lease_ms=4000)
    wait_until_all_have_it(lock, servers[:3])
    servers[1].kill()
    lock.client.wait_for_renewals(3)
    servers[0].observer.delete("lock")
    renewed = lock.client.stats().renewed
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.client.stats().renewed <= renewed + 1  # one may have been under way
    assert tokens(servers[:1]) == [None]


def test_a_lock_that_is_not_renewed_is_not_healed(connect, servers):
    lock = connect(servers[:3], io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    take_everywhere(lock, servers[:3])
    servers[0].crash()
    for count in range(1, 6):
        assert lock.extend() == Status.OK
        wait_until(lambda: served(servers[0], "extend") >= count, "that it was asked to extend it")
    assert served(servers[0], "acquire") == 0
    assert tokens(servers[:3]) == [None, lock.token, lock.token]
    assert lock.release() == Status.OK


def test_a_lock_that_lost_its_majority_is_lost_and_not_healed(connect, servers):
    lock, told = keep(connect, servers[:3], renew_every_ms=200)
    wait_until_all_have_it(lock, servers[:3])

    def are_both_deleted():
        """Not if a renewal came in between, and healed one of them."""
        for server in servers[:2]:
            server.observer.delete("lock")
        return tokens(servers[:2]) == [None, None]
    wait_until(are_both_deleted, "a moment without a renewal")
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert told.find(Event.LOST)[2] == Status.LOST
    assert lock.state == State.LOST and lock.is_lost_by_fd()
    lock.client.hold("pace", lease_ms=LEASE_MS, renew_every_ms=100)
    lock.client.wait_for_renewals(5)  # of the other one: this one would have been renewed, too
    assert tokens(servers[:2]) == [None, None]
    assert connect(servers[:3]).lock().acquire() == Status.OK


def test_a_released_lock_is_not_healed(connect, servers):
    """The release comes at any moment of a renewal that heals."""
    lock, _ = keep(connect, servers[:3], renew_every_ms=10)
    lock.client.hold("pace", 60_000, lease_ms=LEASE_MS, renew_every_ms=10)
    for turn in range(30):
        wait_until_all_have_it(lock, servers[:3])
        servers[0].observer.delete("lock")
        time.sleep(turn % 15 / 1000)
        assert lock.release() == Status.OK
        wait_until(lambda: tokens(servers[:3]) == [None] * 3, "nothing to be left")
        lock.client.wait_for_renewals(3)  # of the other one: this one would have been renewed, too
        assert tokens(servers[:3]) == [None] * 3
        assert lock.acquire(60_000) == Status.OK


# -- kept or lost ---------------------------------------------------------------------------------


def test_a_silent_server_does_not_use_up_the_lease(connect, servers, silent):
    """A majority has answered long before its I/O timeout is over. More than a lease goes by at the
    other two servers, and they still have the lock."""
    lock, told = keep(connect, servers[:3], lease_ms=20_000, io_timeout_ms=LEASE_MS)
    wait_until_all_have_it(lock, servers[:3])
    silent(servers[0])
    for _ in range(3):
        lock.client.wait_for_renewals(2)
        for server in servers[1:3]:
            server.clock.advance(8)
    assert lock.state != State.LOST and Event.LOST not in told.events()
    assert tokens(servers[1:3]) == [lock.token] * 2


def test_a_loss_of_the_majority_is_told_before_the_end(connect, servers):
    lock, told = keep(connect, servers[:3], lease_ms=4000)
    lock.client.wait_for_renewals(3)
    for server in servers[:2]:
        server.kill()
    wait_until(lambda: told.find(Event.LOST), "the loss")
    *before, (event, _, why, _), loss = told.all
    assert (event, why, loss[0]) == (Event.SUSPECT, Status.NO_QUORUM, Event.LOST)
    assert set(each[0] for each in before) <= {Event.ACQUIRED, Event.SUSPECT}  # replies were late
    assert lock.state == State.LOST and lock.is_lost_by_fd()
