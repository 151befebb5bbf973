"""The four commands as a user meets them."""
from support.commands import Lock, stats


def test_a_free_lock_is_granted_with_a_fence(lock):
    assert lock.acquire("me") > 0
    assert lock.info()["token"] == b"me"
