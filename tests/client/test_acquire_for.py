"""A lease per client, per lock and per acquisition."""

import pytest

from support.commands import info_of
from support.libdlock import State, Status

OWN_MS, LONG_MS, SHORT_MS = 60_000, 300_000, 20_000
BRIEF_MS = 6_000  # renewed every two seconds


def lease_of(client, name="lock"):
    return info_of(client.execute_command("DLOCK.INFO", name))["lease"]


@pytest.mark.parametrize("lease_ms", [LONG_MS, SHORT_MS])
def test_an_acquisition_has_the_lease_that_it_asks_for(dlock, client, lease_ms):
    lock = dlock.lock(lease_ms=OWN_MS)
    assert lock.acquire_for(lease_ms) == Status.OK
    assert lease_of(client) == lease_ms
    assert lock.remaining_ms <= lease_ms


def test_the_next_acquisition_has_the_lease_of_the_lock_again(dlock, client):
    lock = dlock.lock(lease_ms=OWN_MS)
    assert lock.acquire_for(LONG_MS) == Status.OK
    assert lock.release() == Status.OK
    assert lock.acquire() == Status.OK
    assert lease_of(client) == OWN_MS


def test_zero_is_the_lease_of_the_lock(dlock, client):
    lock = dlock.lock(lease_ms=OWN_MS)
    assert lock.acquire_for(0) == Status.OK
    assert lease_of(client) == OWN_MS


def test_an_extension_without_a_length_is_as_long_as_the_acquisition(dlock, client):
    lock = dlock.lock(lease_ms=OWN_MS)
    assert lock.acquire_for(LONG_MS) == Status.OK
    assert lock.extend() == Status.OK
    assert lease_of(client) == LONG_MS


def test_renewals_keep_the_lease_of_the_acquisition(connect, server, client):
    """By the lock's own rule, the first renewal would come 20 seconds later, far too late."""
    dlock = connect(server)
    lock = dlock.lock(lease_ms=OWN_MS, renew_every_ms=OWN_MS // 3)
    assert lock.acquire_for(BRIEF_MS) == Status.OK
    dlock.wait_for_renewals()
    assert lease_of(client) == BRIEF_MS
    assert lock.state != State.LOST


def test_a_lease_that_would_be_over_at_once_is_refused(dlock):
    lock = dlock.lock()
    assert lock.acquire_for(9) == Status.INVALID
    assert lock.error == "lease_ms is less than 10"
    assert lock.state == State.FREE


def test_on_a_held_lock_the_lease_is_extended(dlock, client):
    lock = dlock.hold(lease_ms=OWN_MS)
    assert lock.acquire_for(LONG_MS) == Status.OK
    assert lease_of(client) == LONG_MS
    assert lock.release() == Status.OK
    assert lock.state == State.HELD
    assert lock.release() == Status.OK
    assert lock.state == State.FREE


def test_on_a_lost_lock_a_deeper_level_is_refused(dlock, client):
    lock = dlock.hold(lease_ms=OWN_MS)
    client.delete("lock")
    assert lock.acquire_for(LONG_MS) == Status.LOST
    assert lock.release() == Status.LOST
    assert lock.state == State.FREE
