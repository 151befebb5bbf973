"""The driver of the hot lock: its ways are locks, and it would notice if they were not."""

import subprocess

import hot
import pytest

PUBLISH, BLPOP = "publish (Redisson)", "BLPOP (python-redis-lock)"


@pytest.fixture(scope="module")
def program():
    return hot.build()


def contend(program, server, threads, run_ms, arguments, hold_us):
    server.observer.script_load(hot.ways.COMPARE_AND_DELETE)
    return hot.contend(program, server.port, threads, run_ms, arguments, hold_us)


@pytest.mark.parametrize("way", hot.WAYS)
def test_no_two_hold_the_lock_at_once(program, server, way):
    _, contenders = contend(program, server, 8, 200, hot.WAYS[way][1], hold_us=300)
    assert sum(count for count, _, _ in contenders) > 8


def test_the_driver_sees_that_two_hold_the_lock(program, server, capfd):
    everybody_may = ["commands", 0, 0, "SET hot @", "SET hot @"]
    with pytest.raises(subprocess.CalledProcessError):
        contend(program, server, 8, 200, everybody_may, hold_us=300)
    assert "two hold the lock at once" in capfd.readouterr().err


@pytest.mark.parametrize("way, commands_at_most", [(PUBLISH, 7), (BLPOP, 5.1)])
def test_who_waits_is_woken_and_does_not_poll(program, server, way, commands_at_most):
    """Polling every 1-3 ms, seven would ask 35 times while the eighth holds it for 10 ms."""
    sent, contenders = contend(program, server, 8, 500, hot.WAYS[way][1], hold_us=10_000)
    acquisitions = sum(count for count, _, _ in contenders)
    assert sent / acquisitions <= commands_at_most
    assert acquisitions > 12  # of 50


@pytest.mark.parametrize("way", [PUBLISH, BLPOP])
def test_everybody_gets_the_lock_again_and_again(program, server, way):
    """Whoever is not woken waits for the 30 s of the lease."""
    _, contenders = contend(program, server, 4, 500, hot.WAYS[way][1], hold_us=100)
    assert min(count for count, _, _ in contenders) > 3
