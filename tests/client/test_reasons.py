"""Why a client or a lock cannot be had: in words, for the thread that asked."""

import pytest

from support.libdlock import LIST_FN, Background, Client, Status, last_error, lib
from support.server import free_port


def test_a_lock_needs_a_name(dlock):
    with pytest.raises(ValueError) as refusal:
        dlock.lock("")
    assert refusal.value.args == (Status.INVALID, "the name is empty")


def test_after_a_success_there_is_no_reason(dlock):
    with pytest.raises(ValueError):
        dlock.lock("")
    dlock.lock("lock")
    assert last_error() == ""


def test_each_thread_has_a_reason_of_its_own(dlock):
    with pytest.raises(ValueError):
        dlock.lock("")
    assert Background(last_error).result() == ""
    assert last_error() == "the name is empty"


@pytest.mark.parametrize("read, about", [(lib.dlock_inspect, b"lock"), (lib.dlock_list, None)])
def test_a_negative_timeout_is_the_reason(dlock, read, about):
    tell = LIST_FN(lambda arg, seen: True)
    assert read(dlock.handle, about, -1, tell, None, None, 0) == Status.INVALID
    assert last_error() == "timeout_ms is negative"


@pytest.mark.parametrize("url", ["redis://:geheim@", "redis://:geheim@host:port", "geheim://host",
                                 "redis://:geheim@host/geheim", "redis://geheim:@host"])
def test_no_reason_contains_a_password(url):
    with pytest.raises(ValueError) as refusal:
        Client(url)
    status, words = refusal.value.args
    assert status == Status.INVALID and words and "geheim" not in words


# -- who said no ----------------------------------------------------------------------------------

NONE, LOCAL, REMOTE = 0, 1, 2


def test_the_timings_say_which_leg_said_no(connect, server):
    dlock, other = connect(server), connect(server)
    dlock.hotspot_add("hot")
    holder = dlock.lock("hot")
    assert holder.acquire() == Status.OK and holder.timings.refused_by == NONE
    here, there = dlock.lock("hot"), other.lock("hot")
    assert here.acquire(20) == Status.TIMEOUT and here.timings.refused_by == LOCAL
    assert there.acquire(20) == Status.TIMEOUT and there.timings.refused_by == REMOTE


def test_a_service_that_cannot_be_reached_is_on_the_remote_leg(connect):
    lock = connect(f"redis://127.0.0.1:{free_port()}").lock()
    assert lock.acquire() == Status.UNREACHABLE and lock.timings.refused_by == REMOTE
