# SPDX-License-Identifier: BSD-3-Clause
"""dlock_lock_async.py - a lock of dlock for asyncio, with redis-py alone. Copy it, or start there.

    client = redis.asyncio.Redis(port=7379, socket_timeout=2)
    async with Lock(client, "stock:1000", lease=10, wait=5) as lock:
        await write_report(fence=lock.fence)        # renewed as long as this takes
        if lock.lost.is_set(): ...                  # somebody else may be at work: stop
        await lock.guarded("SET", "items", 41)      # in the same Redis: refused if the lock is lost
    async with Lock(client, "cache", shared=True): ...         # one of many readers
    async with Lock(client, "exports", slots=5, wait=60): ...  # at most 5 at a time

The client may also be a redis.asyncio.RedisCluster. dlock_lock.py is the same for threads.

A busy lock is not an error: acquire() returns False, and async with raises Busy. If Redis cannot be
reached, redis.ConnectionError or redis.TimeoutError is raised, and nobody knows who has the lock.
Times are seconds. A Lock is used by one task at a time. Any call may be canceled: a canceled
acquire() leaves the queue, and gives back a lock that it was granted. Set socket_timeout to less
than a third of the lease: a loss is noticed when the attempt to renew is over, at the latest.
"""

import asyncio
import contextlib
import secrets
import time

import redis
import redis.asyncio

# A clock that continues while the machine sleeps, where there is one.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
ANSWER = 2.0  # how long a reply may take beyond the wait
PAUSE = 0.05  # while a slot of a cluster moves


class Busy(Exception):
    """Somebody else holds the lock, and the wait is over."""


class Lost(Exception):
    """The lock is not ours any more, and the server has run nothing."""


class Lock:
    def __init__(self, client, name, lease=10.0, wait=0.0, shared=False, slots=None):
        """slots: hold the lock together with others, but only while fewer than that hold it."""
        self.client, self.name = client, name
        self.lease, self.wait = lease, wait
        self.shared, self.slots = shared or slots is not None, slots
        self.token = None
        self.fence = 0
        self.lost = asyncio.Event()
        self._valid_until = 0.0

    async def acquire(self):
        """True: the lock is ours, and fence is its number. False: somebody else holds it."""
        self.token = secrets.token_hex(16)
        self.lost.clear()
        asked = time.clock_gettime(CLOCK)
        words = ["DLOCK.ACQUIRE", self.name, self.token, "PX", int(self.lease * 1000)]
        if self.shared:
            words.append("SHARED")
        if self.slots is not None:
            words += ["MAX", self.slots]
        try:
            self.fence = await self._ask(words) or 0
            self._count_from(asked if self.fence else None)
            # We count the lease from before the wait. After a long wait, start it anew.
            if self.fence and self.remaining() < 0.9 * self.lease and not await self.renew():
                self.fence = 0
        except (redis.RedisError, asyncio.CancelledError):
            # The lock may have been granted, or the request may still wait: a release ends both.
            # If the release is lost too, the lease ends the lock.
            with contextlib.suppress(redis.RedisError):
                await self._send("DLOCK.RELEASE", self.name, self.token)
            raise
        return self.fence > 0

    async def _ask(self, words):
        """The fence, or None. A client of a cluster finds the server by a first request, which it
        may have to send again to another server. The wait goes straight to the server found."""
        is_cluster = isinstance(self.client, redis.asyncio.RedisCluster)
        if self.wait <= 0:
            return await self._send(*words)
        end = time.clock_gettime(CLOCK) + self.wait
        while True:
            fence = await self._send(*words) if is_cluster else None
            left = end - time.clock_gettime(CLOCK)
            if fence is not None or left <= 0:
                return fence
            own = patient(self.client, self.name, left)
            # In a task of its own: some releases of redis-py swallow a cancellation now and then.
            asking = asyncio.ensure_future(
                own.execute_command(*words, "WAIT", max(1, int(left * 1000))))
            try:
                return await asyncio.shield(asking)
            except redis.ResponseError as error:
                if not is_cluster or not is_moving(error):
                    raise
            finally:
                asking.add_done_callback(lambda done: done.cancelled() or done.exception())
                asking.cancel()
                await own.connection_pool.disconnect()
            await asyncio.sleep(PAUSE)

    async def renew(self):
        """The lease starts anew. False: the lock is not ours any more."""
        asked = time.clock_gettime(CLOCK)
        if await self._send("DLOCK.EXTEND", self.name, self.token, "PX", int(self.lease * 1000)):
            self._count_from(asked)
            return True
        self.lost.set()
        return False

    async def guarded(self, *words):
        """The reply to a Redis command, which the server runs only if the lock is ours: check and
        command are one step there. Raises Lost if the lock is not ours.

        redis.ConnectionError or redis.TimeoutError: the command may have been run, or still be run
        as long as we hold the lock. redis-py may also have sent it twice (see its argument retry).
        So use commands that can be repeated with the same result: SET and HSET, not INCR."""
        try:
            return await self._send("DLOCK.GUARD", self.name, self.token, *words)
        except redis.ResponseError as error:
            if not str(error).startswith("NOTHELD"):
                raise
            self.lost.set()
            raise Lost(self.name) from None

    async def release(self):
        """False: it had ended before, or an earlier try, whose reply was lost, released it."""
        self._count_from(None)
        return await self._send("DLOCK.RELEASE", self.name, self.token) == 1

    def remaining(self):
        """For how many seconds the lock is ours for certain, by our own clock."""
        return max(0.0, self._valid_until - time.clock_gettime(CLOCK))

    def _count_from(self, asked):
        """Counts the lease from before the request was sent, less 1 % for the rates of clocks."""
        self._valid_until = 0.0 if asked is None else asked + 0.99 * self.lease

    async def _send(self, *words):
        """The reply to a short command. If our task is canceled, the command still runs to its end:
        redis-py before 4.5.5 would give the next command the reply to this one."""
        return await asyncio.shield(self.client.execute_command(*words))

    # -- async with

    async def __aenter__(self):
        if not await self.acquire():
            raise Busy(self.name)
        self._renewal = asyncio.ensure_future(self._keep())
        return self

    async def __aexit__(self, *_):
        self._renewal.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._renewal
        with contextlib.suppress(redis.RedisError):  # then the lease ends the lock
            await self.release()

    async def _keep(self):
        pause = self.lease / 3
        while not self.lost.is_set():
            await asyncio.sleep(min(pause, self.remaining()))
            try:
                await self.renew()
                pause = self.lease / 3
            except redis.RedisError:
                pause = self.lease / 20
                if not self.remaining():
                    self.lost.set()


def is_moving(error):
    """Is the slot of the lock moving, or elsewhere? Some releases of redis-py have classes for it,
    others leave the words of the server."""
    known = redis.exceptions.AskError, redis.exceptions.MovedError, redis.exceptions.TryAgainError
    return isinstance(error, known) or str(error).startswith(("ASK ", "MOVED ", "TRYAGAIN "))


def patient(client, name, wait):
    """A client of the server of this lock, with a connection of its own: closed, it ends the wait.
    Its socket does not give up before the wait is over."""
    if isinstance(client, redis.asyncio.RedisCluster):
        source = client.get_node_from_key(name)  # has the same two attributes as a pool
    else:
        source = client.connection_pool
    options = {**source.connection_kwargs, "socket_timeout": wait + ANSWER}
    pool = redis.asyncio.ConnectionPool(source.connection_class, **options)
    return redis.asyncio.Redis(connection_pool=pool)
