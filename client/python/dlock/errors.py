# SPDX-License-Identifier: BSD-3-Clause
"""What can go wrong: answers, with which a program can go on, apart from failures."""


class Error(Exception):
    """All exceptions of this package."""


class Answer(Error):
    """The server has decided: the lock is not yours."""


class Busy(Answer):
    """Somebody else holds the lock."""


class Timeout(Busy):
    """Somebody else held the lock until the wait was over."""


class QueueFull(Busy):
    """Too many clients wait for the lock already."""


class NotHeld(Answer):
    """This lock was not acquired, or was released before."""


class Lost(NotHeld):
    """The lock was yours, and has ended before you released it: somebody else may have it."""


class Failure(Error):
    """The server could not be asked, or did not do what it was asked for."""


class Unreachable(Failure):
    """The request was not carried out: no server could be reached in time."""


class InDoubt(Failure):
    """The request was sent, and no reply came: it may have been carried out.

    After acquire() and release() the session ends what is left of the lock, as soon as the server
    can be reached. Without a session, the lease ends it. A guarded write may have been made."""


class Refused(Failure):
    """The server does not accept the request: a permission, a right argument, or the module is
    missing."""
