"""Read the histories that the workers leave: see history.h, whose numbers these are.

A history becomes a list of tenures, waits, losses and updates, and of calls that came back late.
"""

import bisect
import collections
import dataclasses
import enum
import os
import struct

RECORD = struct.Struct("=qqqIHBB")  # at, number, other, name, thread, status, kind
MS = 1_000_000
# Added to every bound: the processor may be busy with something else.
SLACK = int(os.environ.get("DLOCK_TORTURE_SLACK_MS", "100")) * MS
EVENT_LOST = 4
STALLED, THREADS_MAX = 50 * MS, 4096  # as in crowd.c
STALLS_KNOWN = 100 * MS  # a worker that was killed could not record its last stalls any more
OK = 0


class Kind(enum.IntEnum):
    START = 1
    END = 2
    FREED = 3
    STALL = 4
    EVENT = 5
    ACQUIRE = 6
    ACQUIRED = 7
    SAMPLE = 8
    EXTEND = 9
    EXTENDED = 10
    LOST = 11
    RELEASE = 12
    RELEASED = 13
    WRITE = 14
    WRITTEN = 15
    TOKEN = 16


START, END, FREED, STALL, EVENT, ACQUIRE, ACQUIRED, SAMPLE = range(1, 9)
EXTEND, EXTENDED, LOST, RELEASE, RELEASED, WRITE, WRITTEN, TOKEN = range(9, 17)


ACCOUNTS = "a"  # a lock of this kind has two names: see account_name() of transfer.h


def lock_names(name):
    """The names that a lock has, each as a number of its own. All but accounts have one."""
    kind, one, two = name >> 16, name >> 8 & 0xff, name & 0xff
    if chr(kind) != ACCOUNTS or one == two:
        return (name,)
    return tuple(kind << 16 | each << 8 | each for each in (one, two))


def name_text(name):
    if chr(name >> 16) == ACCOUNTS:
        return " ".join(f"{ACCOUNTS}{each & 0xff}" for each in lock_names(name))
    return f"{chr(name >> 16)}{name & 0xffff}"


def name_of(text):
    if text[0] == ACCOUNTS:
        numbers = [int(word[1:]) for word in text.split()]
        return ord(ACCOUNTS) << 16 | numbers[0] << 8 | numbers[-1]
    return ord(text[0]) << 16 | int(text[1:])


class Tenure:
    """One grant, as its holder saw it: certainly held from begin to end()."""
    __slots__ = ("process", "thread", "name", "mode", "fence", "asked", "begin", "until",
                 "released", "lost", "is_over", "silent")

    def __init__(self, process, thread, name, mode, fence, asked, begin, until):
        self.process, self.thread, self.name, self.mode = process, thread, name, mode
        self.fence = fence
        self.asked, self.begin = asked, begin  # the call and its return
        self.until = until                     # the library said: certainly held until
        self.released = None                   # when the release was called
        self.lost = None                       # when the holder saw the descriptor readable
        self.is_over = False                   # the library said: not certain any more
        self.silent = 0                        # when the descriptor was last not readable then

    def end(self):
        return self.until if self.released is None else min(self.until, self.released)

    def __str__(self):
        return (f"process {self.process} thread {self.thread} with fence {self.fence}, "
                f"{self.begin / 1e9:.6f} to {self.end() / 1e9:.6f}")


@dataclasses.dataclass
class Late:
    """A call that took longer than its bound."""
    what: str
    process: int
    name: int
    at: int
    took: int
    bound: int
    over: int  # by how much, less the time in which the process stood still


@dataclasses.dataclass
class Write:
    name: int
    before: int
    result: int = 2  # in doubt, until a record says otherwise


def merge(spans):
    """The same times, as spans that do not overlap, in order."""
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


class Stalls:
    """When a process stood still."""

    def __init__(self):
        self.begins, self.ends, self.sums = [], [], [0]

    def set(self, spans):
        for begin, end in merge(spans):
            self.begins.append(begin)
            self.ends.append(end)
            self.sums.append(self.sums[-1] + end - begin)

    def within(self, begin, end):
        """How much of this time; whole stalls at its edges."""
        first = bisect.bisect_right(self.ends, begin)
        last = bisect.bisect_left(self.begins, end)
        return max(0, self.sums[last] - self.sums[first]) if last > first else 0


@dataclasses.dataclass
class Bounds:
    """How long calls may take, in ns, beside the wait of an acquire."""
    io: int = 200 * MS
    replicas: int = 0          # replica_timeout_ms, where acknowledgements are asked for
    slack: int = SLACK         # between two readings of the clock, on a busy machine


class Process:
    """What one history says."""

    def __init__(self, number, records, bounds, stops=()):
        """stops: (from, to) in which it was stopped, as the list of faults has it. Its own pulse
        tells of other times in which it stood still."""
        self.number, self.bounds = number, bounds
        self.tenures, self.waits = [], []   # waits: (name, call, return, status)
        self.lost_events = collections.defaultdict(list)
        self.writes = {}                    # by id
        self.late = []                      # calls beyond their bound, slack and all
        self.statuses = collections.Counter()
        self.stalls = Stalls()
        self.last_at, self.is_freed = 0, False
        self._calls, self._held = {}, {}
        records = list(records)
        self.stalls.set([*stops, *((record[1], record[0]) for record in records
                                   if record[6] == STALL)])
        for record in records:
            self._read(*record)
        known_until = self.last_at if self.is_freed else self.last_at - STALLS_KNOWN
        self.late = [late for late in self.late if late.at + late.took <= known_until]

    def _read(self, at, number, other, name, thread, status, kind):
        if at > self.last_at:
            self.last_at = at
        if kind == SAMPLE or kind == EXTENDED:
            tenure = self._held.get(thread)
            if kind == EXTENDED:
                self._return("extend", thread, at, 0)
                status = 0
            if tenure is not None:
                tenure.until = max(tenure.until, other)
                tenure.is_over = not other
                if status and not other:
                    tenure.silent = at
        elif kind in (ACQUIRE, EXTEND, END):
            self._calls[thread] = (at, number, other, name)
        elif kind == RELEASE:
            self._calls[thread] = (at, number, other, name)
            if thread in self._held:
                self._held.pop(thread).released = at
        elif kind == ACQUIRED:
            self._acquired(at, number, other, name, thread, status)
        elif kind == RELEASED:
            self._return("release", thread, at, 0)
        elif kind == LOST:
            if thread in self._held:
                self._held[thread].lost = at
        elif kind == EVENT:
            if number == EVENT_LOST:
                self.lost_events[name].append(at)
        elif kind == WRITE:
            self.writes[number] = Write(name, other)
        elif kind == WRITTEN:
            self.writes[number].result = status
        elif kind == FREED:
            self.is_freed = True

    def _acquired(self, at, fence, until, name, thread, status):
        call = self._return("acquire", thread, at, MS)
        if call is None:
            return
        self.statuses[chr(name >> 16), status] += 1
        self.waits.append((name, call[0], at, status))
        if status == OK:
            tenure = Tenure(self.number, thread, name, call[2], fence, call[0], at, until)
            tenure.is_over = not until
            self.tenures.append(tenure)
            self._held[thread] = tenure

    def _return(self, what, thread, at, per_number):
        """The call that returns now; its number times per_number belongs to its bound."""
        call = self._calls.pop(thread, None)
        if call is None:
            return None
        begin, number, _, name = call
        bound = number * per_number + self.bounds.io + self.bounds.replicas
        over = at - begin - bound
        if over > 0:
            over -= self.stalls.within(begin, at)
            self.late.append(Late(what, self.number, name, begin, at - begin, bound, over))
        return call

    def pending(self):
        """(at, number, other, name) of calls that never returned: the process was killed."""
        return self._calls.values()

    def unheard(self, lease):
        """(name, from, to): the process asked for the lock and stood still, or was killed, so it
        may have been granted the lock without hearing of it."""
        returns = [wait[2] for wait in self.waits]
        for begin, end in zip(self.stalls.begins, self.stalls.ends):
            if end - begin < STALLED:
                continue
            first = bisect.bisect_left(returns, begin)
            for name, asked, _, _ in self.waits[first:first + THREADS_MAX]:
                if asked <= begin:
                    yield name, begin, end + lease
            for asked, _, _, name in self.pending():
                if asked <= begin:
                    yield name, begin, end + lease
        for _, _, _, name in self.pending():
            yield name, self.last_at, self.last_at + lease


def read_file(path):
    """The records of a file, in the order in which their places were taken. A place may be empty,
    if the process was killed before it wrote there; so may the file."""
    with open(path, "rb") as file:
        is_empty = os.fstat(file.fileno()).st_size == 0  # in which no hole can be looked for
        end = 0 if is_empty else os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        file.seek(0)
        data = file.read(end - end % RECORD.size)
    return (record for record in RECORD.iter_unpack(data) if record[6])
