"""The driver of the hot lock: its ways are locks, and it would notice if they were not."""

import subprocess

import hot
import pytest

from support.server import wait_until

PUBLISH, BLPOP = "publish (Redisson)", "BLPOP (python-redis-lock)"


@pytest.fixture(scope="module")
def program():
    return hot.build()


def contend(program, server, threads, run_ms, arguments, hold_us, is_enough=lambda counts: True):
    """How many commands were sent, and how often each thread had the lock. Again, if that is not
    enough to judge by: the machine may have been busy with something else."""
    server.observer.script_load(hot.ways.COMPARE_AND_DELETE)
    seen = []

    def has_enough():
        sent, contenders = hot.contend(program, server.port, threads, run_ms, arguments, hold_us)
        seen[:] = [sent, [count for count, _, _ in contenders]]
        return is_enough(seen[1])
    wait_until(has_enough, "enough to judge by")
    return seen


@pytest.mark.parametrize("way", hot.WAYS)
def test_no_two_hold_the_lock_at_once(program, server, way):
    contend(program, server, 8, 200, hot.WAYS[way][1], 300, lambda counts: sum(counts) > 8)


def test_the_driver_sees_that_two_hold_the_lock(program, server, capfd):
    everybody_may = ["commands", 0, 0, "SET hot @", "SET hot @"]
    with pytest.raises(subprocess.CalledProcessError):
        contend(program, server, 8, 20_000, everybody_may, hold_us=300)
    assert "two hold the lock at once" in capfd.readouterr().err


@pytest.mark.parametrize("way, commands_at_most", [(PUBLISH, 7), (BLPOP, 5.1)])
def test_who_waits_is_woken_and_does_not_poll(program, server, way, commands_at_most):
    """Polling every 1-3 ms, seven would ask 35 times while the eighth holds it for 10 ms."""
    sent, counts = contend(program, server, 8, 500, hot.WAYS[way][1], 10_000,
                           lambda counts: sum(counts) > 12)  # of 50
    assert sent / sum(counts) <= commands_at_most


@pytest.mark.parametrize("way", [PUBLISH, BLPOP])
def test_everybody_gets_the_lock_again_and_again(program, server, way):
    """Whoever is not woken waits for the 30 s of the lease."""
    contend(program, server, 4, 500, hot.WAYS[way][1], 100, lambda counts: min(counts) > 3)
