"""The locks of other libraries, as the benchmark uses them."""

import peers
import pytest


@pytest.mark.parametrize("lock", peers._installed().values())
def test_every_contender_gets_the_lock_and_nothing_is_left(server, lock):
    waits = peers.contend(server, lock, 0.3, processes=3)
    assert len(waits) == 3 and all(waits)
    assert not server.observer.exists(peers.KEY)


def test_redis_py_is_among_the_peers():
    assert peers.REDIS_PY in peers._installed()
