"""Fences of several servers rise, whichever majority grants, and whatever their clocks say."""

import random

import pytest

from support.commands import Lock as Commands
from support.libdlock import Status
from support.redlock import (LEASE_MS, LONG_IO_MS, MINUTE_US, give_back, hold_on, infos, take_turn,
                             tokens)
from support.server import wait_until


@pytest.fixture
def start_at(start_server):
    """start_at(hours): a server whose clock is so far ahead."""
    def start(hours):
        server = start_server(has_clock=True)
        server.clock.step(hours * 3600)
        return server

    return start


def assert_they_rise(fences):
    assert all(a < b for a, b in zip(fences, fences[1:])), fences


def test_fences_rise_whichever_majority_grants(connect, servers):
    """The clocks of the servers are minutes apart, and every time another two are busy."""
    for minutes, server in enumerate(servers):
        fence = Commands(server.observer, "clock").acquire("me") + minutes * MINUTE_US
        Commands(server.observer, "clock").acquire("me", 10_000, "FENCE", fence)
    clients = [connect(servers, io_timeout_ms=LONG_IO_MS) for _ in range(3)]
    locks, fences = [client.lock() for client in clients], []
    chance = random.Random(1)
    for i in range(60):
        out = chance.sample(servers, 2)
        hold_on(out)
        take_turn(locks[i % 3], fences)
        give_back(out)
    assert_they_rise(fences)


def test_fences_rise_while_servers_die_and_come_back(connect, start_server):
    servers = [start_server("--appendonly", "yes", "--appendfsync", "always") for _ in range(5)]
    ports = [server.port for server in servers]
    clients = [connect(servers, io_timeout_ms=LONG_IO_MS) for _ in range(2)]
    locks, fences = [client.lock() for client in clients], []
    chance = random.Random(2)
    for round_number in range(10):
        out = chance.sample(range(5), chance.choice([1, 2]))
        for i in out:
            servers[i].kill()
        for turn in range(20):
            take_turn(locks[turn % 2], fences)
        for i in out:
            servers[i].start(ports[i])
    assert len(fences) == 200
    assert_they_rise(fences)


def test_one_round_is_enough_while_the_servers_agree(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    lock, fences, commands = dlock.lock(), [], []
    for _ in range(50):
        before = dlock.stats().commands
        take_turn(lock, fences)
        commands.append(dlock.stats().commands - before)
    # On a slow machine some are raised, and what is sent last may be counted with the next turn.
    assert 2 * len(servers) in commands
    assert_they_rise(fences)


def test_a_majority_counts_on_from_the_fence_before_it_is_told(connect, servers):
    ahead = Commands(servers[0].observer, "clock").acquire("me") + 4 * MINUTE_US
    Commands(servers[0].observer, "clock").acquire("me", 10_000, "FENCE", ahead)
    for server in servers[3:]:
        server.kill()  # so that nobody else can make up the majority
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).hold()
    assert lock.fence > ahead
    assert all(info["fence"] >= lock.fence for info in infos(servers[:3]))


def test_a_client_whose_clock_is_an_hour_ahead_takes_turns(connect, start_at):
    """Servers refuse the fence that such a client would ask for."""
    servers = [start_at(-1) for _ in range(3)]
    clients, fences = [connect(servers, io_timeout_ms=LONG_IO_MS) for _ in range(2)], []
    locks = [client.lock() for client in clients]
    for turn in range(10):
        take_turn(locks[turn % 2], fences)
    assert_they_rise(fences)


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("hours", [1, -1])
def test_one_server_whose_clock_is_an_hour_off_prevents_no_acquire(
        connect, start_at, start_server, start_proxy, count, hours):
    """The others refuse to count on from its fence, or it from theirs. It is the fastest to reply:
    the others are behind a proxy."""
    odd, others = start_at(hours), [start_server() for _ in range(count - 1)]
    urls = [odd, *(start_proxy(server) for server in others)]
    clients, fences = [connect(urls, io_timeout_ms=LONG_IO_MS) for _ in range(2)], []
    locks = [client.lock(lease_ms=LEASE_MS) for client in clients]
    for turn in range(60):
        lock = locks[turn % 2]
        assert lock.acquire() == Status.OK, (turn, lock.error)
        fences.append(lock.fence)
        assert lock.release() == Status.OK
        wait_until(lambda: tokens([odd, *others]) == [None] * count, "nothing to be left")
    assert_they_rise(fences)


def test_a_grant_is_undone_if_the_fences_are_too_far_apart(connect, start_at, start_server):
    """One server is an hour ahead, one is dead: the third refuses to count on from that fence."""
    servers = [start_at(1), start_server(), start_server()]
    servers[2].kill()
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    assert lock.acquire() == Status.NO_QUORUM
    assert "not with the same fence" in lock.error
    wait_until(lambda: tokens(servers[:2]) == [None, None], "nothing to be left")
