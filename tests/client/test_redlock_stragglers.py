"""Servers whose replies come after those of the majority: they are part of it all the same."""

import time

import pytest

from support.commands import Lock as Commands
from support.libdlock import State, Status
from support.redlock import granted, served, tokens
from support.server import stopped, wait_until

LONG_IO_MS = 60_000
CROWD = 64


@pytest.fixture
def servers(lend):
    return lend(3)


def test_a_grant_whose_reply_is_late_counts_when_it_was_extended(connect, servers, start_proxy):
    """C's reply to the acquire is held up, and C is extended on another connection, so C is one of
    the two that hold the lock when A is cut off. If the lock were released at C then, because its
    reply is late, another client would get it from A and C."""
    a, b, c = servers
    to_a, to_c = start_proxy(a), start_proxy(c)
    to_c.mute(b"DLOCK.ACQUIRE")
    holder = connect([to_a, b, to_c], io_timeout_ms=200)
    lock = holder.hold(lease_ms=LONG_IO_MS, renew_every_ms=200, wait_ms=LONG_IO_MS)
    wait_until(lambda: served(c, "extend") > 0, "a renewal at C")
    to_a.hold_back()
    a.clock.advance(2 * LONG_IO_MS / 1000)
    wait_until(lambda: tokens([a]) == [None], "the end of the lease at A")
    lock.client.wait_for_renewals(2)  # by B and C
    holder.lock("other").acquire()
    thief = connect([a, b, c]).lock()
    status = thief.acquire(1000)
    assert not (status == Status.OK and lock.state == State.HELD), \
        f"two hold it; the first for {lock.remaining_ms} ms more"


class Later:
    """Replies after a while, on each connection."""

    def __init__(self, pause):
        self.pause = pause

    def __call__(self, words):
        time.sleep(self.pause)
        return granted(words)


def share_asked(dlock, slow, rounds=10):
    """Of so many acquires, how many were asked of the slow one as well."""
    lock, before = dlock.lock("calm"), len(slow.asked("DLOCK.ACQUIRE"))
    for _ in range(rounds):
        assert lock.acquire(LONG_IO_MS) == Status.OK
        time.sleep(0.05)
        assert lock.release() in (Status.OK, Status.NO_QUORUM)  # replies may be late
        time.sleep(0.05)
    return (len(slow.asked("DLOCK.ACQUIRE")) - before) / rounds


def test_a_slow_server_is_asked_again_after_a_bad_moment(connect, servers, fake_server):
    """It replies to each request, 20 ms after the others: nobody waits for it, but it is heard."""
    slow = fake_server(Later(0.02))
    dlock = connect([slow, *servers[:2]], io_timeout_ms=200)
    wait_until(lambda: share_asked(dlock, slow) > 0.8, "it to be asked")
    slow.answer.pause = 1  # the bad moment
    wait_until(lambda: share_asked(dlock, slow) < 0.8, "it to be skipped")
    slow.answer.pause = 0.02
    wait_until(lambda: share_asked(dlock, slow) > 0.8, "it to be asked again")


def test_a_slow_server_is_not_skipped_under_load(connect, servers, fake_server):
    """50 ms later than the others, without a failure: many replies are outstanding."""
    slow = fake_server(Later(0.05))
    dlock = connect([slow, *servers[:2]])
    end = time.monotonic() + 1
    while time.monotonic() < end:
        lock = dlock.hold("fast", wait_ms=LONG_IO_MS)
        assert lock.release() == Status.OK
    wait_until(lambda: share_asked(dlock, slow) > 0.8, "it to be asked each time")


def test_a_release_is_heard_though_many_replies_have_not_come(connect, servers):
    """C has granted these locks. While it is stopped for a moment, many others are taken and given
    back; C hears of all releases."""
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    first = [dlock.lock(f"first-{i}", lease_ms=LONG_IO_MS) for i in range(10)]
    for lock in first:
        assert lock.acquire() == Status.OK
    stop = servers[2]
    wait_until(lambda: stop.observer.dbsize() == 10, "all grants")
    others = [dlock.lock(f"other-{i}", lease_ms=LONG_IO_MS) for i in range(CROWD)]
    with stopped(stop):
        for lock in others:
            assert lock.acquire() == Status.OK
        for lock in first:
            assert lock.release() == Status.OK
        for lock in others:
            assert lock.release() == Status.OK
    wait_until(lambda: stop.observer.dbsize() == 0, "all to be given back, long before their lease")


def test_a_lock_that_was_handed_on_is_given_back_everywhere(connect, servers, start_proxy):
    """A lock that is handed on with too little of its lease is asked for again. C hears of all of
    it late."""
    a, b, c = servers
    to_c = start_proxy(c)
    to_c.hold_back()
    dlock = connect([a, b, to_c], io_timeout_ms=LONG_IO_MS, hotspot_hand_on=3)
    dlock.hotspot_add("lock")
    first, second = dlock.hold(lease_ms=10_000), dlock.lock(lease_ms=60_000)
    waiting = dlock.wait_in_line(second)
    assert first.release() == Status.OK
    assert waiting.result() == Status.OK
    assert dlock.stats().hand_ons == 1
    assert second.release() == Status.OK
    before = c.observer.info("stats")["total_commands_processed"]
    to_c.let_go()
    wait_until(lambda: c.observer.info("stats")["total_commands_processed"] >= before + 4,
               "three requests, and this one")
    wait_until(lambda: c.observer.keys("*") == [], "nothing to be left")


def hold_at_two(servers):
    for server in servers[:2]:
        assert Commands(server.observer).acquire("somebody", LONG_IO_MS) > 0


def test_a_lost_release_of_a_grant_without_majority_is_sent_again(connect, servers, start_proxy):
    """C alone grants the lock, and its connection ends with the RELEASE on the way."""
    hold_at_two(servers)
    to_c = start_proxy(servers[2])
    to_c.delay(b"DLOCK.RELEASE")
    lock = connect([*servers[:2], to_c]).lock(lease_ms=LONG_IO_MS)
    assert lock.acquire() == Status.BUSY, lock.error
    wait_until(lambda: to_c.delayed_count >= 1, "the RELEASE on its way")
    wait_until(lambda: servers[2].observer.exists("lock"), "the grant")
    to_c.delay_no_more()
    to_c.cut()
    wait_until(lambda: not servers[2].observer.exists("lock"), "its release")


def test_a_withdrawal_goes_on_until_all_servers_have_answered(connect, servers, start_proxy):
    """C has granted the lock, and hears nothing for a while. The others do not hold the lock, and
    are a majority."""
    hold_at_two(servers)
    to_c = start_proxy(servers[2])
    to_c.delay(b"DLOCK.RELEASE")
    lock = connect([*servers[:2], to_c], io_timeout_ms=200).lock(lease_ms=LONG_IO_MS)
    assert lock.acquire() in (Status.BUSY, Status.NO_QUORUM), lock.error  # replies may be late
    wait_until(lambda: to_c.delayed_count >= 1, "the RELEASE on its way")
    to_c.cut()
    wait_until(lambda: served(servers[0], "release") > 1, "two withdrawals at A")
    wait_until(lambda: servers[2].observer.exists("lock"), "the grant")
    to_c.delay_no_more()
    to_c.cut()  # so that none of them arrives late
    wait_until(lambda: not servers[2].observer.exists("lock"), "its release")
