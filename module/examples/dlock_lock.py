# SPDX-License-Identifier: BSD-3-Clause
"""dlock_lock.py - a lock of dlock from Python, with redis-py alone. Copy it, or start from it.

    client = redis.Redis(port=7379, socket_timeout=2)
    with Lock(client, "stock:1000", lease=10, wait=5) as lock:
        write_report(fence=lock.fence)        # renewed as long as this takes
        if lock.lost.is_set(): ...            # somebody else may be at work: stop
        lock.guarded("SET", "items", 41)      # in the same Redis: refused if the lock is lost
    with Lock(client, "cache", shared=True): ...         # one of many readers
    with Lock(client, "exports", slots=5, wait=60): ...  # at most 5 at a time

The client may also be a redis.RedisCluster. dlock_lock_async.py is the same for asyncio.

A busy lock is not an error: acquire() returns False, and the with statement raises Busy. If Redis
cannot be reached, redis.ConnectionError or redis.TimeoutError is raised, and nobody knows who has
the lock. Times are seconds. A Lock is used by one thread at a time. Set socket_timeout to less than
a third of the lease: a loss is noticed when the attempt to renew is over, at the latest.
"""

import contextlib
import secrets
import threading
import time

import redis

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
        self.lost = threading.Event()
        self._valid_until = 0.0

    def acquire(self):
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
            self.fence = self._ask(words) or 0
            self._count_from(asked if self.fence else None)
            # We count the lease from before the wait. After a long wait, start it anew.
            if self.fence and self.remaining() < 0.9 * self.lease and not self.renew():
                self.fence = 0
        except redis.RedisError:
            # The lock may have been granted, or the request may still wait: a release ends both.
            # If the release is lost too, the lease ends the lock.
            with contextlib.suppress(redis.RedisError):
                self.client.execute_command("DLOCK.RELEASE", self.name, self.token)
            raise
        return self.fence > 0

    def _ask(self, words):
        """The fence, or None. A client of a cluster finds the server by a first request, which it
        may have to send again to another server. The wait goes straight to the server found."""
        is_cluster = isinstance(self.client, redis.RedisCluster)
        if self.wait <= 0:
            return self.client.execute_command(*words)
        end = time.clock_gettime(CLOCK) + self.wait
        while True:
            fence = self.client.execute_command(*words) if is_cluster else None
            left = end - time.clock_gettime(CLOCK)
            if fence is not None or left <= 0:
                return fence
            try:
                with patient(self.client, self.name, left) as client:
                    return client.execute_command(*words, "WAIT", max(1, int(left * 1000)))
            except redis.ResponseError as error:
                if not is_cluster or not is_moving(error):
                    raise
            time.sleep(PAUSE)

    def renew(self):
        """The lease starts anew. False: the lock is not ours any more."""
        asked = time.clock_gettime(CLOCK)
        if self.client.execute_command("DLOCK.EXTEND", self.name, self.token,
                                       "PX", int(self.lease * 1000)):
            self._count_from(asked)
            return True
        self.lost.set()
        return False

    def guarded(self, *words):
        """The reply to a Redis command, which the server runs only if the lock is ours: check and
        command are one step there. Raises Lost if the lock is not ours.

        redis.ConnectionError or redis.TimeoutError: the command may have been run, or still be run
        as long as we hold the lock. redis-py may also have sent it twice (see its argument retry).
        So use commands that can be repeated with the same result: SET and HSET, not INCR."""
        try:
            return self.client.execute_command("DLOCK.GUARD", self.name, self.token, *words)
        except redis.ResponseError as error:
            if not str(error).startswith("NOTHELD"):
                raise
            self.lost.set()
            raise Lost(self.name) from None

    def release(self):
        """False: it had ended before, or an earlier try, whose reply was lost, released it."""
        self._count_from(None)
        return self.client.execute_command("DLOCK.RELEASE", self.name, self.token) == 1

    def remaining(self):
        """For how many seconds the lock is ours for certain, by our own clock."""
        return max(0.0, self._valid_until - time.clock_gettime(CLOCK))

    def _count_from(self, asked):
        """Counts the lease from before the request was sent, less 1 % for the rates of clocks."""
        self._valid_until = 0.0 if asked is None else asked + 0.99 * self.lease

    # -- with

    def __enter__(self):
        if not self.acquire():
            raise Busy(self.name)
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._keep, daemon=True)
        self._renewal.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._renewal.join()
        with contextlib.suppress(redis.RedisError):  # then the lease ends the lock
            self.release()

    def _keep(self):
        pause = self.lease / 3
        while not self._ended.wait(min(pause, self.remaining())) and not self.lost.is_set():
            try:
                self.renew()
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


@contextlib.contextmanager
def patient(client, name, wait):
    """A client of the server of this lock, with a longer timeout if its sockets would give up too
    early."""
    if isinstance(client, redis.RedisCluster):
        client = client.get_redis_connection(client.get_node_from_key(name))
    pool = client.connection_pool
    limit = pool.connection_kwargs.get("socket_timeout")
    if limit is None or limit >= wait + ANSWER:
        yield client
        return
    options = {**pool.connection_kwargs, "socket_timeout": wait + ANSWER}
    own = redis.Redis(connection_pool=redis.ConnectionPool(pool.connection_class, **options))
    try:
        yield own
    finally:
        own.connection_pool.disconnect()
