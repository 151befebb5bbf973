# SPDX-License-Identifier: BSD-3-Clause
"""Distributed locks inside Redis, with redis-py alone. dlock.aio is the same for asyncio.

    client = dlock.Client("redis://localhost:7379")
    with client.lock("order:1000", wait=5) as lock:
        write_report(fence=lock.fence)                  # kept as long as this takes
        lock.guarded("SET", "order:1000:state", "paid")  # refused if the lock is lost
"""

from . import aio
from .errors import (Answer, Busy, Error, Failure, InDoubt, Lost, NotHeld, QueueFull, Refused,
                     Timeout, Unreachable)
from .threads import Client, Lock

__version__ = "1.0.0"
__all__ = ["Answer", "Busy", "Client", "Error", "Failure", "InDoubt", "Lock", "Lost", "NotHeld",
           "QueueFull", "Refused", "Timeout", "Unreachable", "aio"]
