"""The locks of other libraries, as the benchmark uses them."""

import peers
import pytest

from support.server import wait_until


@pytest.mark.parametrize("lock", peers._installed().values())
def test_every_contender_gets_the_lock_and_nothing_is_left(server, lock):
    wait_until(lambda: all(peers.contend(server, lock, 0.3, processes=3)), "a turn of each")
    assert not server.observer.exists(peers.KEY)


def test_redis_py_is_among_the_peers():
    assert peers.REDIS_PY in peers._installed()
