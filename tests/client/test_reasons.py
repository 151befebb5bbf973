"""Why a client or a lock cannot be had: in words, for the thread that asked."""

import pytest

from support.libdlock import Background, Client, Status, last_error


def test_the_reason_names_the_option(dlock):
    with pytest.raises(ValueError) as refusal:
        dlock.lock(lease_ms=9)
    words = "lease_ms: not 10 to 4294967295"
    assert refusal.value.args == (Status.INVALID, words)


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


@pytest.mark.parametrize("url", ["redis://:geheim@", "redis://:geheim@host:port", "geheim://host",
                                 "redis://:geheim@host/geheim", "redis://geheim:@host"])
def test_no_reason_contains_a_password(url):
    with pytest.raises(ValueError) as refusal:
        Client(url)
    status, words = refusal.value.args
    assert status == Status.INVALID and words and "geheim" not in words
