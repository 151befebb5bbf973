"""How a handle may be used: which threads, canceled or not, after a loss, and not at all."""

import ctypes

import pytest

from support.commands import Lock as Commands, served
from support.libdlock import (FORM, FOREVER, Background, ClientOptions, Event, Reply, Stats, State,
                              Status, Timings, last_error, lib)
from support.server import wait_until

EVERY_STATUS = [
    ("acquire", 0), ("acquire_for", 0, 0), ("try_acquire",), ("extend", 0), ("release",),
    ("guarded", 0, None, None, None)]


def refused_elsewhere(lock):
    """What another thread is told that acquires by the same handle."""
    return Background(lambda: (lock.acquire(), last_error())).result()


# -- threads


def test_another_thread_is_refused_and_told_why(dlock):
    lock = dlock.hold()
    status, why = refused_elsewhere(lock)
    assert status == Status.INVALID
    assert why.startswith("another thread has taken the lock by this handle")
    assert lock.acquire() == Status.OK, "the thread that holds the lock may"
    assert (lock.release(), lock.release()) == (Status.OK, Status.OK)
    assert refused_elsewhere(lock)[0] == Status.OK, "once the lock is given back"


def test_another_thread_may_release_the_lock(dlock):
    lock = dlock.hold()
    assert Background(lock.release).result() == Status.OK
    assert lock.acquire() == Status.OK


def test_an_acquire_that_failed_leaves_the_handle_to_any_thread(dlock):
    dlock.hold()
    lock = dlock.lock()
    assert lock.acquire() == Status.BUSY
    assert lock.acquire(-2) == Status.INVALID
    assert refused_elsewhere(lock)[0] == Status.BUSY


# -- cancel


def test_a_cancel_lasts_until_it_is_lifted(dlock):
    lock = dlock.lock()
    lock.cancel()
    assert [lock.acquire(wait) for wait in (FOREVER, 0, 5)] == [Status.CANCELED] * 3
    lock.uncancel()
    assert lock.acquire() == Status.OK


@pytest.mark.parametrize("of", ["lock", "client"])
def test_a_cancel_that_is_lifted_at_once_still_ends_the_wait(dlock, of):
    dlock.hold()
    waiting = dlock.lock()
    wait = Background(waiting.acquire, FOREVER)
    wait_until(lambda: dlock.stats().commands >= 3, "the request to wait")
    canceled = waiting if of == "lock" else dlock
    canceled.cancel()
    canceled.uncancel()
    assert wait.result() == Status.CANCELED
    assert waiting.acquire() == Status.BUSY


def test_a_held_lock_is_used_and_released_though_canceled(dlock):
    lock = dlock.hold()
    lock.cancel()
    assert lock.acquire() == Status.OK, "another level needs no request"
    assert (lock.extend(), lock.release(), lock.release()) == (Status.OK,) * 3


@pytest.mark.skipif(FORM != "blocking", reason="every form looks at the same switch")
def test_a_cancel_of_the_client_ends_all_waits_and_later_ones(dlock, client):
    holder, other = dlock.hold(), dlock.lock("other")
    waits = [Background(dlock.lock().acquire, FOREVER) for _ in range(3)]
    wait_until(lambda: dlock.stats().commands >= 4, "requests of all")
    dlock.cancel()
    assert [wait.result() for wait in waits] == [Status.CANCELED] * 3
    assert other.acquire() == Status.CANCELED
    assert dlock.scope_run("third", lambda got: None, FOREVER) == Status.CANCELED
    assert holder.release() == Status.OK
    dlock.uncancel()
    assert other.acquire() == Status.OK


# -- a loss


def lose(lock, client, name="lock"):
    client.delete(name)
    assert lock.extend() == Status.LOST


@pytest.mark.parametrize("is_told_by_extend", [True, False])
def test_after_a_loss_was_seen_the_next_acquire_is_a_new_one(connect, server, client, told,
                                                             is_told_by_extend):
    lock = connect(server, on_event=told).hold()
    lock.acquire()
    first_token, first_fence = lock.token, lock.fence
    client.delete("lock")
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert (lock.extend if is_told_by_extend else lock.acquire)() == Status.LOST
    assert lock.acquire() == Status.OK
    assert lock.token != first_token and lock.fence > first_fence
    assert lock.state == State.HELD
    assert (lock.release(), lock.release()) == (Status.OK, Status.NOT_HELD)
    assert [event.name for event in told.events()] == [
        "ACQUIRED", "LOST", "RELEASED", "ACQUIRED", "RELEASED"]


def test_a_release_after_a_loss_still_tells_of_it(dlock, client):
    lock = dlock.hold()
    lose(lock, client)
    assert (lock.release(), lock.acquire()) == (Status.LOST, Status.OK)


def test_a_new_acquire_after_a_loss_takes_nothing_from_the_next_holder(dlock, client):
    lock, next_holder = dlock.hold(), dlock.lock()
    lose(lock, client)
    next_holder.acquire()
    assert lock.acquire() == Status.BUSY
    assert next_holder.extend() == Status.OK


def test_a_new_acquire_after_a_loss_releases_the_lost_token_once(dlock, client):
    lock = dlock.hold()
    lose(lock, client)
    assert (lock.acquire(), served(client, "release")) == (Status.OK, 1)


def test_a_scope_stays_lost_until_its_end(dlock, client):
    def body(_):
        client.delete("lock")
        statuses.extend(dlock.scope_run("lock", lambda got: None, lease_ms=60_000)
                        for _ in range(2))

    statuses = []
    assert dlock.scope_run("lock", body) == Status.LOST
    assert statuses == [Status.LOST, Status.LOST]


# -- NULL


@pytest.mark.parametrize("call", EVERY_STATUS, ids=lambda call: call[0])
def test_a_missing_lock_is_a_mistake_with_a_reason(call):
    name, *arguments = call
    assert getattr(lib, f"dlock_{name}")(None, *arguments) == Status.INVALID
    assert last_error() == "no lock is given"
    assert lib.dlock_last_error(None) == b"no lock is given"


def test_a_missing_client_is_a_mistake_with_a_reason():
    for name, *arguments in [("client_ping", 0), ("hotspot_add", b"n"), ("hotspot_remove", b"n")]:
        assert getattr(lib, f"dlock_{name}")(None, *arguments) == Status.INVALID
        assert last_error() == "no client is given"


def test_questions_about_nothing_have_answers():
    stats = Stats(struct_size=ctypes.sizeof(Stats))
    timings = Timings(struct_size=ctypes.sizeof(Timings))
    lib.dlock_client_get_stats(None, ctypes.byref(stats))
    lib.dlock_get_timings(None, ctypes.byref(timings))
    assert (stats.acquired, timings.attempts) == (0, 0)
    assert lib.dlock_get_state(None) == State.FREE
    assert (lib.dlock_remaining_ms(None), lib.dlock_fence(None)) == (0, 0)
    assert lib.dlock_token(None) == b""
    assert (lib.dlock_lost_fd(None), lib.dlock_client_fd(None)) == (-1, -1)
    assert lib.dlock_client_dispatch(None) == 0
    for name in ("cancel", "uncancel", "client_cancel", "client_uncancel", "lock_free",
                 "client_free", "watcher_free"):
        getattr(lib, f"dlock_{name}")(None)


# -- options of one lock, and other versions of the header


def test_a_lock_can_do_without_the_renewal_and_session_of_the_url(connect, server, client):
    dlock = connect(f"redis://127.0.0.1:{server.port}?lease_ms=60000&renew=yes&session=yes")
    tied, alone = dlock.lock("tied"), dlock.lock("alone", renew=2, session=2)
    assert (tied.acquire(), alone.acquire()) == (Status.OK, Status.OK)
    assert Commands(client, "tied").info().get("session", 0) != 0
    assert Commands(client, "alone").info().get("session", 0) == 0


def test_a_reply_of_an_older_program_is_filled_as_far_as_it_goes(dlock):
    lock = dlock.hold()
    words = (ctypes.c_char_p * 3)(b"SET", b"lock-data", b"5")
    short = Reply(struct_size=Reply.text_length.offset, integer=9, text_length=77)
    assert lib.dlock_guarded(lock.handle, 3, words, None, ctypes.byref(short)) == Status.OK
    assert (short.kind, short.integer, short.text_length) == (2, 0, 77)


def test_options_of_an_older_program_are_enough(server):
    urls = (ctypes.c_char_p * 1)(f"redis://127.0.0.1:{server.port}".encode())
    made = ClientOptions(struct_size=ClientOptions.prefix.offset, url_count=1)
    made.urls = ctypes.cast(urls, ctypes.POINTER(ctypes.c_char_p))
    handle = ctypes.c_void_p()
    assert lib.dlock_client_new(ctypes.byref(handle), ctypes.byref(made)) == Status.OK
    lib.dlock_client_free(handle)
