"""checker.py FOLDER: is what the workers of a run saw what dlock promises?

check() is pure: histories go in, violations come out as sentences. Which promises hold in which
scenario is in Rules; README.md explains each. Times are nanoseconds on CLOCK_BOOTTIME.

    exclusion   two certain holders overlap only if both are shared and within their limit
    fences      a holder that asked after another was granted the lock has the larger fence
    told        a holder whose certainty ended without its doing was told by then
    bounds      every call returned by its bound
    stuck       nobody waited for a lock that nobody had, for longer than a lease
    updates     an acknowledged update is never lost, a refused one never done
"""

import bisect
import collections
import dataclasses
import heapq
import itertools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from records import (ACCOUNTS, MS, SLACK, Bounds, Process, lock_names, merge,  # noqa: E402
                     name_text, read_file)

STUCK_SLACK = 1400 * MS + SLACK  # to notice an end, reconnect and try again
WAIT_TOLERANCE = 100 * MS  # a waiter that gives up and asks again so soon has waited on
IN_DOUBT, REFUSED, DONE = 2, 1, 0
SHOWN = 20  # violations of one kind


def is_account(name):
    return chr(name >> 16) == ACCOUNTS


def is_odd(name):
    """So are accounts: every lock of such a name would have to be acknowledged."""
    return name & 1 or is_account(name)


@dataclasses.dataclass
class Rules:
    """What is promised in a scenario. unsafe_kinds: kinds of locks that may be held twice there;
    unsafe_odd: locks with odd numbers may, since no replica acknowledges them. has_fences: a plain
    Redis has none. unsafe_odd_fences: those of odd numbers may go back; stale: they may do so for
    whoever asks in one of these spans of time, as a master has been replaced and does not know it.
    fence_slack: a fence may be lower than an earlier one by less than this.
    is_judged: else all is counted, and nothing is a violation, for locks of others."""
    lease: int = 600 * MS
    unsafe_kinds: str = "s"
    unsafe_odd: bool = False
    has_fences: bool = True
    unsafe_odd_fences: bool = False
    stale: list = dataclasses.field(default_factory=list)
    fence_slack: int = 0
    are_updates_safe: bool = True
    is_judged: bool = True
    bounds: Bounds = dataclasses.field(default_factory=Bounds)

    def is_exclusive_promised(self, name):
        return chr(name >> 16) not in self.unsafe_kinds and not (self.unsafe_odd and is_odd(name))

    def are_fences_promised(self, name, asked):
        may_go_back = self.unsafe_odd_fences or any(begin <= asked <= end
                                                    for begin, end in self.stale)
        return self.has_fences and not (may_go_back and is_odd(name))


@dataclasses.dataclass
class Report:
    violations: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    worst: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(int))

    def add(self, promise, sentence):
        self.violations[promise].append(sentence)

    def total(self):
        return sum(map(len, self.violations.values()))


def check(processes, rules, outages=(), values=None):
    """processes: of records.py. outages: (from, to) in which the service was disturbed. values: the
    last update of each name, as the store has it."""
    report = Report()
    by_name = collections.defaultdict(list)
    for process in processes:
        for tenure in process.tenures:
            for name in lock_names(tenure.name):
                by_name[name].append(tenure)
        _check_bounds(process, report, rules.bounds.slack)
        _check_told(process, report)
    _count(processes, report)
    for name, tenures in by_name.items():
        tenures.sort(key=lambda tenure: tenure.begin)
        _check_exclusion(name, tenures, rules, report)
        _check_fences(name, tenures, rules, report)
    _check_stuck(processes, by_name, rules, outages, report)
    if values is not None:
        _check_updates(processes, values, rules, report)
    if not rules.is_judged:
        report.violations.clear()
    return report


def _count(processes, report):
    for process in processes:
        report.counts["grants"] += len(process.tenures)
        report.counts["calls"] += sum(process.statuses.values())
        report.counts["losses told"] += sum(map(len, process.lost_events.values()))
        for (kind, status), count in process.statuses.items():
            if status == 0:
                report.counts[f"grants of {kind}"] += count


# -- one process ----------------------------------------------------------------------------------


def _check_bounds(process, report, slack):
    for late in process.late:
        report.worst["call beyond its bound, ms"] = max(report.worst["call beyond its bound, ms"],
                                                        late.over / MS)
        if late.over > slack:
            report.add("bounds", f"{late.what} of {name_text(late.name)} by process {late.process} "
                       f"at {late.at / 1e9:.6f} took {late.took / MS:.0f} ms, "
                       f"bound {late.bound / MS:.0f}")


def _check_told(process, report):
    for tenure in process.tenures:
        if not tenure.until or not tenure.is_over and tenure.lost is None:
            continue  # never certain (a session whose connection has just ended), or never over
        seen_until = process.last_at if tenure.released is None else tenure.released
        events = process.lost_events.get(tenure.name, ())
        place = bisect.bisect_left(events, tenure.asked)
        is_told = place < len(events) and events[place] <= seen_until
        told_at = events[place] if is_told else seen_until
        late = told_at - tenure.until - process.stalls.within(tenure.until, told_at)
        report.counts["losses"] += is_told
        if is_told:
            report.worst["loss told late, ms"] = max(report.worst["loss told late, ms"], late / MS)
        if late > SLACK:
            when = f"{late / MS:.0f} ms late" if is_told else f"not within {late / MS:.0f} ms"
            report.add("told", f"{name_text(tenure.name)}: {tenure} was told of its loss {when}")
        mute = tenure.silent - tenure.until - process.stalls.within(tenure.until, tenure.silent)
        if mute > SLACK:
            report.add("told", f"{name_text(tenure.name)}: {tenure}: the descriptor did not tell "
                       f"of its loss for {mute / MS:.0f} ms")


# -- one name -------------------------------------------------------------------------------------


def _check_exclusion(name, tenures, rules, report):
    """tenures by their begin. A heap has those that have not ended."""
    is_promised = rules.is_exclusive_promised(name)
    held = []
    for order, tenure in enumerate(tenures):
        if tenure.end() <= tenure.begin:
            continue
        while held and held[0][0] <= tenure.begin:
            heapq.heappop(held)
        others = [other for _, _, other in held]
        if tenure.mode:
            clash = [other for other in others if not other.mode]
            if not clash and tenure.mode > 0 and len(others) >= tenure.mode:
                clash = others
        else:
            clash = others
        if clash:
            report.counts["held twice" if is_promised else "held twice, not promised"] += 1
        if clash and is_promised:
            report.add("exclusion", f"{name_text(name)}: {tenure} beside {clash[0]}")
        heapq.heappush(held, (tenure.end(), order, tenure))


def _check_fences(name, tenures, rules, report):
    """Those granted before another asked have smaller fences; shared ones are compared only with
    exclusive ones. A thread that is handed a hot name has a fence of its own."""
    largest = {False: (-1, 0), True: (-1, 0)}  # is_shared: the largest fence, and whose
    granted = 0
    for tenure in sorted(tenures, key=lambda tenure: tenure.asked):
        while granted < len(tenures) and tenures[granted].begin <= tenure.asked:
            before = tenures[granted]
            largest[bool(before.mode)] = max(largest[bool(before.mode)],
                                             (before.fence, before.process))
            granted += 1
        worst = largest[False] if tenure.mode else max(largest.values())
        if worst[0] < tenure.fence:
            continue
        is_promised = (worst[0] - tenure.fence >= rules.fence_slack
                       and rules.are_fences_promised(name, tenure.asked))
        report.counts["fences back" if is_promised else "fences back, not promised"] += 1
        if is_promised:
            report.add("fences", f"{name_text(name)}: {tenure} after fence {worst[0]} of "
                       f"process {worst[1]}")


# -- all ------------------------------------------------------------------------------------------


def _longest_gap(covered, begins, begin, end):
    """The longest part of this time that is in none of the intervals."""
    place = max(0, bisect.bisect_right(begins, begin) - 1)
    longest, free_from = 0, begin
    while place < len(covered) and covered[place][0] < end:
        longest = max(longest, covered[place][0] - free_from)
        free_from = max(free_from, covered[place][1])
        place += 1
    return max(longest, end - free_from)


def _check_stuck(processes, by_name, rules, outages, report):
    """A wait during which nobody certainly held the lock, and nothing was broken, for longer than a
    lease: a grant that nobody heard of may take so long to end. A process that is stopped while it
    waits may get the lock, once for each of its threads, and never hear of it."""
    spans = collections.defaultdict(list)
    for process in processes:
        for asked, begin, end in process.unheard(rules.lease):
            for name in lock_names(asked):
                spans[name].append((begin, end))
    for name, tenures in by_name.items():
        spans[name] += [(each.begin, max(each.begin, each.end())) for each in tenures]
    for process, wait, gap in itertools.chain(
            _gaps_of_one_name(processes, spans, rules, outages, report),
            _gaps_of_accounts(processes, spans, outages)):
        asked, begin, end, _ = wait
        gap -= process.stalls.within(begin, end)
        report.worst["waiting beside a free lock, ms"] = max(
            report.worst["waiting beside a free lock, ms"], gap / MS)
        if gap > rules.lease + STUCK_SLACK:
            report.add("stuck", f"{name_text(asked)}: process {process.number} waited from "
                       f"{begin / 1e9:.6f} to {end / 1e9:.6f}, {gap / MS:.0f} ms of it with "
                       "nobody there")


def _gaps_of_one_name(processes, spans, rules, outages, report):
    """(process, wait, its longest time with nobody there) of all locks but accounts."""
    covered, waits = {}, collections.defaultdict(list)
    for process in processes:
        for wait in process.waits:
            name, begin, end, _ = wait
            if is_account(name):
                continue
            waits[name].append((begin, end + WAIT_TOLERANCE))
            if end - begin < rules.lease:
                continue
            if name not in covered:
                covered[name] = _coverage(spans[name], outages)
            yield process, wait, _longest_gap(*covered[name], begin, end)
    for name, asked in waits.items():
        covering = covered.get(name) or _coverage(spans[name], outages)
        stuck = max(_longest_gap(*covering, begin, end) for begin, end in merge(asked))
        report.worst["name without a holder, ms"] = max(report.worst["name without a holder, ms"],
                                                        stuck / MS)


def _gaps_of_accounts(processes, spans, outages):
    """The same for accounts. Whoever waits for two of them may stand behind one who waits for one
    of these and for a third, which is held: so a wait has nobody there if none of the accounts that
    waits connect with it, at that time, is held. Walks along all events in their order."""
    waits, events = {}, []
    for process in processes:
        for wait in process.waits:
            if is_account(wait[0]):
                waits[len(waits)] = process, wait
    for process in processes:
        for asked, _, _, name in process.pending():
            if is_account(name):
                waits[len(waits)] = process, (name, asked, process.last_at, None)
    for number, (_, (_, begin, end, _)) in waits.items():
        events += [(begin, 1, "wait", number), (end, -1, "wait", number)]
    everywhere = 0  # an outage is as if this account, and all others with it, were held
    for name, each in [*spans.items(), (everywhere, outages)]:
        if name == everywhere or is_account(name):
            for begin, end in each:
                events += [(begin, 1, "hold", name), (end, -1, "hold", name)]
    waiting, held = set(), collections.Counter()
    free_from, longest = {}, collections.Counter()
    for at, change, what, which in sorted(events):
        if what == "hold":
            held[which] += change
        elif change > 0:
            waiting.add(which)
        else:
            waiting.discard(which)
            longest[which] = max(longest[which], at - free_from.pop(which, at))
        stuck = set() if held[everywhere] > 0 else _with_nobody_there(
            {number: waits[number][1][0] for number in waiting}, held)
        for number in waiting:
            if number in stuck:
                free_from.setdefault(number, at)
            elif number in free_from:
                longest[number] = max(longest[number], at - free_from.pop(number))
    for number, (process, wait) in waits.items():
        if wait[3] is not None:
            yield process, wait, longest[number]


def _with_nobody_there(waiting, held):
    """waiting: the lock of each wait. Those of them that no held account is connected with."""
    by_account = collections.defaultdict(list)
    for number, lock in waiting.items():
        for account in lock_names(lock):
            by_account[account].append(number)
    reached, todo = set(), [account for account in by_account if held[account] > 0]
    done = set(todo)
    while todo:
        for number in by_account[todo.pop()]:
            if number not in reached:
                reached.add(number)
                more = [each for each in lock_names(waiting[number]) if each not in done]
                done.update(more)
                todo += more
    return waiting.keys() - reached


def _coverage(spans, outages):
    """When somebody held a name, or nobody could: spans in order, and their begins."""
    merged = merge([*spans, *outages])
    return merged, [span[0] for span in merged]


def _check_updates(processes, values, rules, report):
    """Walk from the last value of each name back to the first."""
    writes = {}
    for process in processes:
        writes.update(process.writes)
    alive = set()
    for text, last in values.items():
        while last:
            if last not in writes:
                report.add("updates", f"{text}: nobody wrote {last}")
                break
            if last in alive:
                report.add("updates", f"{text}: update {last} is there twice")
                break
            alive.add(last)
            last = writes[last].before
    promise = "updates" if rules.are_updates_safe else None
    for number, write in writes.items():
        report.counts["updates"] += write.result == DONE or number in alive
        if write.result == DONE and number not in alive:
            report.counts["updates lost"] += 1
            if promise:
                report.add(promise, f"{name_text(write.name)}: update {number} is lost")
        if write.result == REFUSED:
            report.counts["updates refused"] += 1
            if number in alive:
                report.counts["updates refused and done"] += 1
                if promise:
                    report.add(promise, f"{name_text(write.name)}: update {number} was refused, "
                               "and is done")
        report.counts["updates in doubt"] += write.result == IN_DOUBT


# -- a run ----------------------------------------------------------------------------------------


def read_faults(folder):
    return [json.loads(line) for path in sorted(folder.glob("faults*.jsonl"))
            for line in path.read_text().splitlines()]


def read_run(folder):
    """run.json, and the rules in it. A master that is not killed goes on until it is demoted, and
    for a lease after that, what it has granted may be held, or be handed on within a process."""
    run = json.loads((folder / "run.json").read_text())
    rules = Rules(**{**run["rules"], "bounds": Bounds(**run["rules"]["bounds"])})
    rules.stale = [(fault["at"], fault["to"] + rules.lease) for fault in read_faults(folder)
                   if fault["kind"] in ("failover: stop", "failover: switch")]
    return run, rules


def read_histories(folder, run):
    """(number, records) of each process. One that was killed at once has left nothing."""
    for number in range(run["workers"]):
        path = folder / f"worker-{number}.history"
        if path.exists():
            yield number, read_file(path)


def check_folder(folder):
    """A run that torture.py has left: run.json, faults.jsonl, worker-N.history."""
    folder = pathlib.Path(folder)
    run, rules = read_run(folder)
    faults = read_faults(folder)
    outages = [(fault["at"], fault["to"]) for fault in faults if fault["outage"]]
    stops = collections.defaultdict(list)
    for fault in faults:
        if fault["kind"] == "SIGSTOP of a worker":
            stops[fault["target"]].append((fault["at"], fault["to"]))
    processes = [Process(number, records, rules.bounds, stops[number])
                 for number, records in read_histories(folder, run)]
    report = check(processes, rules, outages, run["values"])
    report.counts["faults"] = len(faults)
    for sentence in run["troubles"] if rules.is_judged else ():
        report.add("leftovers", sentence)
    return report


def print_report(report):
    counts = ", ".join(f"{name} {count}" for name, count in sorted(report.counts.items()))
    worst = ", ".join(f"{name} {value:.0f}" for name, value in sorted(report.worst.items()))
    print(f"counted: {counts}")
    print(f"worst: {worst}")
    for promise, sentences in sorted(report.violations.items()):
        print(f"VIOLATED: {promise}, {len(sentences)} times")
        for sentence in sentences[:SHOWN]:
            print(f"    {sentence}")
    print(f"violations: {report.total()}")


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    report = check_folder(sys.argv[1])
    print_report(report)
    return int(report.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
