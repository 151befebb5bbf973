"""What happened to the locks of a server, seen from three sides, and whether it was right.

    commands   MONITOR: what was executed, in which order and when; so who waited first
    events     the replication stream: what the server decided, in its order
    claims     the clients: what each asked for, what it was told, when its connection ended

check() is pure: a history goes in, the promises it breaks come out as sentences. Times are unix
seconds of one machine. A token is used for one claim only, so it names the claim.

A claim on several names has a token that ends with SEVERAL. It is judged as a claim on each name,
whose token part_of() makes; all of them have one fence.
"""

import bisect
import dataclasses
import itertools
import re

PENDING = "pending"  # an answer that never came
SEVERAL = "+"
GIVEN_BACK = ("release", "hand-over")
CLOCK_SLACK = 0.050    # between two readings of the clock, on a busy machine
MONITOR_SLACK = 1.000  # a command's line may be so much later than what it did, on a busy machine
BRIEF = 0.500          # what it takes to give a lock back, on a busy machine
WAKE_SLACK = 0.500     # how long a lock may be free beside a waiter, on a busy machine


def part_of(token, key):
    return f"{token}{key}" if token.endswith(SEVERAL) else token


def whole_of(token):
    return token.partition(SEVERAL)[0]


@dataclasses.dataclass
class Claim:
    """One try of one client to get one lock."""
    key: str
    token: str
    wait_ms: int = 0
    is_session: bool = False
    is_string: bool = False        # another kind of client: SET key token NX PX
    is_shared: bool = False
    max_holders: int = None        # SHARED MAX
    sent_at: float = 0.0
    answer: object = PENDING       # a fence, None, the text of an error, or True for SET's OK
    answered_at: float = 0.0
    release: object = PENDING      # what a RELEASE of the token was answered, if one was sent
    lost_at: float = None          # when the end of its connection was set off
    unblocked_at: float = None     # when CLIENT UNBLOCK was sent for it
    cuts: list = dataclasses.field(default_factory=list)  # when its named session was cut off


@dataclasses.dataclass
class Command:
    """A line of MONITOR."""
    at: float
    name: str
    key: str
    token: str = None


@dataclasses.dataclass
class Event:
    """A command of the replication stream: "grant", "release", "gone" or "string". The stream says
    how long a lease is, and when a string expires. A "release" is also the end of a lease or of a
    session."""
    kind: str
    key: str
    token: str = None
    fence: int = 0
    lease: float = None            # of a grant, in seconds
    is_shared: bool = False        # of a grant
    expires: float = None          # of a string
    at: float = None               # when we had read it, if we know: it happened before
    may_miss: bool = False         # a release of several names, some of which were not held


@dataclasses.dataclass
class Tenure:
    """From one grant, or one SET of a plain string, to its end, as the server logged it."""
    key: str
    token: str
    fence: int                     # 0: a plain string
    expires: float                 # counted from the grant or from an EXTEND, as far as we know
    is_shared: bool = False
    extended_at: float = None      # the line of the EXTEND that "expires" is counted from
    end: str = None                # "release", "hand-over", "gone", or None: not yet
    ended_by: float = None         # it ended before that, if we know
    was_last: bool = False         # when it ended, nobody else held the lock
    next: "Tenure" = None          # the first one to begin on the same key after its end


@dataclasses.dataclass
class History:
    commands: list
    events: list
    claims: list
    ended_at: float
    pauses: list = dataclasses.field(default_factory=list)  # (from, to): no write, or a stall


# -- reading --------------------------------------------------------------------------------------

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


def read_monitor(text):
    """MONITOR's lines to commands; those without a key, and those of modules, are left out."""
    commands = []
    for line in text.splitlines():
        head, _, words = line.partition("] ")
        at, _, origin = head.lstrip("+").partition(" [")
        words = _WORD.findall(words)
        if len(words) >= 2 and ":" in origin and "?" not in origin:
            name = words[0].upper()
            if name in ("DLOCK.ACQUIREALL", "DLOCK.RELEASEALL"):
                keys, token = words[2:2 + int(words[1])], words[2 + int(words[1])]
                commands += [Command(float(at), name[:-len("ALL")], key, part_of(token, key))
                             for key in keys]
                continue
            token = words[2] if len(words) > 2 else None
            commands.append(Command(float(at), name, words[1], token))
    return commands


def read_stream(chunks):
    """A replication stream to events: its bytes as they came, each chunk with its time."""
    events = []
    ends = list(itertools.accumulate(len(data) for _, data in chunks))
    for end, (name, *words) in _split_commands(b"".join(data for _, data in chunks)):
        name = name.upper().decode()
        at = chunks[bisect.bisect_left(ends, end)][0]
        keys, words = _split_keys(name, words)
        if name in ("DLOCK.APPLY", "DLOCK.APPLYALL"):
            token, fence, lease_ms, *shared = (word.decode() for word in words)
            events += [Event("grant", key, part_of(token, key), int(fence), int(lease_ms) / 1000,
                             bool(shared), at=at) for key in keys]
        elif name in ("DLOCK.RELEASE", "DLOCK.RELEASEALL"):
            events += [Event("release", key, part_of(words[0].decode(), key), at=at,
                             may_miss=name.endswith("ALL")) for key in keys]
        elif name in ("DEL", "UNLINK"):
            events += [Event("gone", key.decode(), at=at) for key in words]
        elif name == "SET" and b"PXAT" in words:
            key, token = (word.decode() for word in words[:2])
            expires = int(words[words.index(b"PXAT") + 1]) / 1000
            events.append(Event("string", key, token, expires=expires, at=at))
    return events


def _split_keys(name, words):
    """The names of locks in a command of the module, and the words behind them."""
    if not name.startswith("DLOCK.") or len(words) < 2:
        return [], words
    count = int(words.pop(0)) if name.endswith("ALL") else 1
    return [key.decode() for key in words[:count]], words[count:]


def _split_commands(data):
    """Each command, and where it ends."""
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        count, at = int(data[at + 1:end]), end + 2
        words = []
        for _ in range(count):
            end = data.index(b"\r\n", at)
            length, at = int(data[at + 1:end]), end + 2
            words.append(data[at:at + length])
            at += length + 2
        if words:
            yield at, words


# -- judging --------------------------------------------------------------------------------------


def check(history):
    """The broken promises, as sentences."""
    problems = []
    tenures = _tenures(history, problems)
    facts = _Facts(history, tenures)
    for tenure in tenures:
        _check_end(tenure, facts, problems)
        _check_session(tenure, facts, problems)
    for claim in history.claims:
        _check_answer(claim, facts, problems)
    for key in facts.waits:
        _check_order(key, facts, problems)
        _check_nobody_waits_beside_a_free_lock(key, facts, problems)
    return problems


def hand_over_delays(history):
    """Seconds from the end of a lock to the grant to one who waited, by how it ended."""
    facts = _Facts(history, _tenures(history, []))
    delays = {"del": [], "lease": [], "string": []}
    for tenure in itertools.chain(*facts.tenures.values()):
        free_from, then = facts.free_from(tenure), tenure.next
        if tenure.end is None or then is None or not then.fence or facts.is_paused(free_from):
            continue
        claim = facts.claims.get(then.token)
        if claim is not None and claim.wait_ms and facts.asked[then.token] < free_from:
            kind = "lease" if tenure.fence else "string"
            if facts.let_go_at(tenure) == free_from or not tenure.was_last:
                continue
            kind = "del" if facts.deleted_at(tenure) == free_from else kind
            delays[kind].append(facts.began(then) - free_from)
    return delays


def _tenures(history, problems):
    """Who held what, in the order of the grants. Only shared holders overlap, and fences only
    grow."""
    names = _Names(history)
    tenures, last_fence, last_whole = [], 0, None
    for event in history.events:
        name = names.of(event.key)
        holder = name.find(event)
        if event.kind == "grant" and holder and holder.fence == event.fence:
            extended_at = names.extended.get(event.token, event.fence / 1e6)
            if extended_at + event.lease > holder.expires:
                holder.expires, holder.extended_at = extended_at + event.lease, extended_at
            if holder.token != event.token:
                problems.append(f"{event.key}: fence {event.fence} has two tokens, "
                                f"{holder.token} and {event.token}")
        elif event.kind in ("grant", "string"):
            problems += name.objections(event, names.limits.get(event.token))
            if event.kind == "grant":
                is_same = event.fence == last_fence and whole_of(event.token) == last_whole
                if event.fence <= last_fence and not is_same:
                    problems.append(f"{event.key}: fence {event.fence} of {event.token} is not "
                                    f"above {last_fence}")
                last_fence, last_whole = max(last_fence, event.fence), whole_of(event.token)
            tenures.append(name.begin(event))
        elif event.may_miss and holder is None:
            continue
        elif not name.holders:
            problems.append(f"{event.key}: {event.kind} of {event.token}, but nobody held it")
        elif event.kind == "gone":
            name.end(list(name.holders), event.kind, event.at)
        elif holder is None:
            held_by = " and ".join(tenure.token for tenure in name.holders)
            problems.append(f"{event.key}: {event.token} released what {held_by} held")
        else:
            name.end([holder], event.kind, event.at)
    return tenures


class _Names:
    """The names of locks, and what the events do not tell of the tokens."""

    def __init__(self, history):
        self.by_key = {}
        self.extended = {command.token: command.at for command in reversed(history.commands)
                         if command.name == "DLOCK.EXTEND"}
        self.limits = {claim.token: claim.max_holders for claim in history.claims
                       if claim.max_holders}

    def of(self, key):
        return self.by_key.setdefault(key, _Name())


class _Name:
    """Who holds one lock while its events are read."""

    def __init__(self):
        self.holders = []  # tenures that have not ended
        self.ended = []    # tenures without a successor yet

    def find(self, event):
        """The holder that the event is about: by its fence, else by its token."""
        if event.kind == "grant":
            same = [each for each in self.holders if each.fence == event.fence]
        else:
            same = [each for each in self.holders if each.token == event.token]
        return same[0] if same else None

    def is_joined_by(self, event):
        return event.is_shared and any(each.is_shared for each in self.holders)

    def objections(self, event, limit):
        """Why this grant, or this SET of a string, should not have been. A grant that replaces one
        holder is a hand-over."""
        held_by = " and ".join(tenure.token for tenure in self.holders)
        if self.is_joined_by(event):
            if limit is not None and len(self.holders) >= limit:
                yield (f"{event.key}: {event.token} got permit {len(self.holders) + 1} of {limit}, "
                       f"beside {held_by}")
        elif len(self.holders) > 1 or self.holders and event.kind == "string":
            yield f"{event.key}: {event.token} took it while {held_by} held it"

    def begin(self, event):
        if not self.is_joined_by(event):
            self.end(list(self.holders), "hand-over", event.at)
        expires = event.expires
        if event.kind == "grant":
            expires = event.fence / 1e6 + event.lease
        tenure = Tenure(event.key, event.token, event.fence, expires, event.is_shared)
        for before in self.ended:
            before.next = tenure
        self.ended = []
        self.holders.append(tenure)
        return tenure

    def end(self, tenures, how, at):
        for tenure in tenures:
            tenure.end, tenure.ended_by = how, at
            self.holders.remove(tenure)
            tenure.was_last = not self.holders
        self.ended += tenures


class _Facts:
    """The history, looked up by token and by key."""

    def __init__(self, history, tenures):
        self.over_at = history.ended_at
        self.pauses = history.pauses
        self.claims = {claim.token: claim for claim in history.claims}
        self.tenures, self.granted = {}, {}
        for tenure in tenures:
            self.tenures.setdefault(tenure.key, []).append(tenure)
            self.granted[tenure.token] = tenure
        self.asked, self.released, self.deletions, self.order = {}, {}, {}, {}
        for place, command in enumerate(history.commands):
            if command.name in ("DLOCK.ACQUIRE", "SET"):
                self.asked.setdefault(command.token, command.at)
                self.order.setdefault(command.token, place)
            elif command.name == "DLOCK.RELEASE":
                self.released.setdefault(command.token, command.at)
            elif command.name == "DEL":
                self.deletions.setdefault(command.key, []).append(command.at)
        self.waits = {}
        waits = [c for c in history.claims if c.wait_ms and c.token in self.order]
        for claim in sorted(waits, key=lambda c: self.order[c.token]):
            self.waits.setdefault(claim.key, []).append(claim)

    def began(self, tenure):
        return tenure.fence / 1e6 if tenure.fence else self.asked.get(tenure.token, 0.0)

    def followed_at(self, tenure):
        """When the next one had it, or the history ended."""
        return self.began(tenure.next) if tenure.next else self.over_at

    def let_go_at(self, tenure):
        """When its holder gave it back, or died, or could no longer be told of it; or None."""
        claim = self.claims.get(tenure.token)
        if claim is None:
            return None
        moments = []
        if tenure.token in self.released and claim.release != 0:
            moments.append(self.released[tenure.token])
        if claim.lost_at is not None and (claim.is_session or claim.answer == PENDING):
            moments.append(claim.lost_at)
        if claim.unblocked_at is not None and _is_no(claim.answer):
            moments.append(claim.unblocked_at)  # CLIENT UNBLOCK was faster than the answer
        moments += [cut for cut in claim.cuts if self.is_noticed_late(cut, self.began(tenure))]
        return min(moments, default=None)

    def is_noticed_late(self, ended_at, began):
        """A connection ended, perhaps before this grant: had the server not noticed it by then?"""
        return ended_at + BRIEF > began or self.is_paused(ended_at, began)

    def stall_at(self, at):
        """How long the server stood still around that moment: by so much its line of MONITOR, or
        its fence, may be later than what it did."""
        return max((last - first for first, last in self.pauses
                    if first - CLOCK_SLACK <= at <= last + CLOCK_SLACK), default=0)

    def deleted_at(self, tenure, early=0, late=0):
        """When DEL was first called on it, or None."""
        times = self.deletions.get(tenure.key, [])
        first = bisect.bisect_left(times, self.began(tenure) - early)
        if first == len(times) or times[first] > self.followed_at(tenure) + late:
            return None
        return times[first]

    def free_from(self, tenure):
        """When it was over, give or take what the server needs to notice."""
        is_given_back = tenure.end in GIVEN_BACK and not self.may_be_told(tenure)
        other_end = self.let_go_at(tenure) if is_given_back else self.deleted_at(tenure)
        return _first(tenure.expires, other_end)

    def may_be_told(self, tenure):
        """Was it lost, without a session, just before or after the grant? Then the server may have
        sent the answer, and lets it keep the lock."""
        claim = self.claims.get(tenure.token)
        if claim is not None and claim.cuts:
            return True
        return (claim is not None and claim.lost_at is not None and claim.answer == PENDING
                and not claim.is_session
                and self.is_noticed_late(claim.lost_at, self.began(tenure)))

    def ended_at(self, tenure):
        """When it was another's, or nobody's; a little later if only the stream tells."""
        return _first(tenure.ended_by, self.followed_at(tenure))

    def is_brief(self, tenure):
        """It was taken back, or ended otherwise before that could be done."""
        began, ended = self.began(tenure), self.ended_at(tenure)
        over_at = _first(tenure.expires, self.deleted_at(tenure))
        slack = MONITOR_SLACK if tenure.end == "release" else 0
        return tenure.end is not None and (
            ended - began < BRIEF + slack or over_at - began < BRIEF
            or self.is_paused(began, ended))

    def is_paused(self, begin, end=None):
        end = begin if end is None else end
        return any(first <= end and last >= begin for first, last in self.pauses)

    def may_leave_at(self, claim):
        """The first moment at which this waiter may have left its queue without the lock."""
        moments = [claim.sent_at + claim.wait_ms / 1000]
        moments += [at for at in (claim.lost_at, claim.unblocked_at) if at is not None]
        return min(moments)


def _check_end(tenure, facts, problems):
    """Each end needs a reason, and each begin a question."""
    who = f"{tenure.key}: {tenure.token}"
    if tenure.token not in facts.asked:
        problems.append(f"{who} got it without asking")
    followed_at = facts.followed_at(tenure)
    line_slack = MONITOR_SLACK + facts.stall_at(followed_at)
    lease_slack = CLOCK_SLACK + facts.stall_at(tenure.extended_at or facts.began(tenure))
    is_expired = tenure.expires < facts.ended_at(tenure) + lease_slack
    if tenure.end is None:
        problems.append(f"{who} still holds it")
    elif is_expired:
        pass
    elif tenure.end == "gone":
        if facts.deleted_at(tenure, CLOCK_SLACK, line_slack) is None:
            problems.append(f"{who} lost it before its lease ended, and nobody deleted it")
    else:
        let_go_at = facts.let_go_at(tenure)
        if let_go_at is None or let_go_at > followed_at + line_slack:
            problems.append(f"{who} lost it by {tenure.end} before its lease ended, but neither "
                            f"released it nor died (by {followed_at}, let go {let_go_at})")


def _check_session(tenure, facts, problems):
    """A lock ends with the connection it is tied to."""
    claim = facts.claims.get(tenure.token)
    if claim is None or not claim.is_session or claim.lost_at is None:
        return
    orphaned_at = max(claim.lost_at, facts.began(tenure))
    ended_at = min(facts.ended_at(tenure), tenure.expires)
    if ended_at - orphaned_at > WAKE_SLACK and not facts.is_paused(orphaned_at, ended_at):
        problems.append(f"{tenure.key}: {tenure.token} kept it after its connection had ended")


def _first(*moments):
    """The first of those that are known."""
    return min(moment for moment in moments if moment is not None)


def _is_no(answer):
    """Null, or an error."""
    return answer is None or isinstance(answer, str) and answer != PENDING


def _check_answer(claim, facts, problems):
    """What a client is told is what the server decided."""
    who = f"{claim.key}: {claim.token}"
    tenure = facts.granted.get(claim.token)
    if claim.answer == PENDING:
        if claim.lost_at is None:
            problems.append(f"{who} was never answered")
    elif isinstance(claim.answer, int) and not claim.is_string:
        if tenure is None or (tenure.key, tenure.fence) != (claim.key, claim.answer):
            problems.append(f"{who} was told fence {claim.answer}, which was not granted to it")
    elif _is_no(claim.answer):
        if tenure is not None and not facts.is_brief(tenure):
            problems.append(f"{who} was told {claim.answer}, but it was granted the lock")
        waited_ms = (claim.answered_at - claim.sent_at) * 1000
        is_early = claim.answer is None and waited_ms < claim.wait_ms - 1
        if is_early and claim.unblocked_at is None and tenure is None:
            problems.append(f"{who} was told no after {waited_ms:.0f} of {claim.wait_ms} ms")
    if claim.wait_ms and claim.answer != PENDING and not claim.cuts:
        decided_at = facts.began(tenure) if tenure else claim.answered_at
        over_at = claim.sent_at + claim.wait_ms / 1000
        if decided_at - over_at > WAKE_SLACK and not facts.is_paused(over_at, decided_at):
            problems.append(f"{who} waited {decided_at - over_at:.1f} s longer than it asked for")
    if claim.release == 1 and (tenure is None or tenure.end not in GIVEN_BACK):
        problems.append(f"{who} was told that it released the lock, but it did not hold it")
    if claim.release == 0 and tenure is not None and tenure.end is None:
        problems.append(f"{who} was told that it does not hold the lock, but it does")


def _check_order(key, facts, problems):
    """First come, first served: a grant finds nobody waiting who came before."""
    waiting = list(reversed(facts.waits[key]))  # the first is the last of the list
    for tenure in facts.tenures.get(key, ()):
        if not tenure.fence or tenure.token not in facts.order:
            continue  # a plain SET knows of no queue
        began = facts.began(tenure)
        place = facts.order[tenure.token]
        while waiting and facts.order[waiting[-1].token] <= place:
            claim = waiting.pop()
            if claim.token == tenure.token or claim.cuts:
                continue  # a session that is away is passed over
            other = facts.granted.get(claim.token)
            if other is not None:
                is_overtaken = facts.began(other) > began
            else:
                is_overtaken = facts.may_leave_at(claim) > began + CLOCK_SLACK
            if is_overtaken:
                problems.append(f"{key}: {tenure.token} overtook {claim.token}")


def _check_nobody_waits_beside_a_free_lock(key, facts, problems):
    """Whoever waits for several names, or behind such a one, may do so."""
    if any(SEVERAL in claim.token for claim in facts.waits[key]):
        return
    for tenure in facts.tenures.get(key, ()):
        if not tenure.was_last and tenure.end is not None:
            continue  # others held it still
        free_from, free_to = facts.free_from(tenure), facts.followed_at(tenure)
        if free_from is None or free_to - free_from < WAKE_SLACK:
            continue
        if facts.is_paused(free_from, free_to):
            continue
        for claim in facts.waits[key]:
            if claim.cuts:
                continue
            granted = facts.granted.get(claim.token)
            left_at = facts.began(granted) if granted else facts.may_leave_at(claim)
            beside = min(left_at, free_to) - max(facts.asked[claim.token], free_from)
            if beside > WAKE_SLACK:
                problems.append(
                    f"{key}: {claim.token} waited {beside * 1000:.0f} ms beside a free lock")
