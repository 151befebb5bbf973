"""export.py [--edn] FOLDER: the histories of a run in a neutral form, for checkers of other people.

JSON lines, one operation a line, in the order in which the operations returned; or, with --edn, a
history as Jepsen writes it. README.md, "A judge from outside", describes both. This file reads the
records by itself, without the tenures of records.py, so that a judge of the export owes nothing to
the first checker.
"""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import checker  # noqa: E402
import records  # noqa: E402

JUDGE = pathlib.Path(__file__).with_name("judge.awk")
BEGINS = {records.ACQUIRE: "acquire", records.EXTEND: "extend", records.RELEASE: "release"}
ENDS = (records.ACQUIRED, records.EXTENDED, records.RELEASED)
UPDATES = ("ok", "refused", "in doubt", "not begun")  # by update_result


class Operations:
    """Of one process, in the order in which they returned. Times are as the history has them."""

    def __init__(self, process, history, rules):
        self.process, self.rules = process, rules
        self.done, self.calls, self.tokens, self.certain, self.writes = [], {}, {}, {}, {}
        for record in history:
            self._read(*record)
        self.done += [*self.calls.values(), *self.writes.values()]  # killed before they returned

    def _make(self, call, thread, name, begin, **more):
        return {"process": self.process, "thread": thread, "call": call,
                "name": records.name_text(name), "begin": begin, "end": None, **more}

    def _read(self, at, number, other, name, thread, status, kind):
        if kind in BEGINS:
            self.calls[thread] = self._make(BEGINS[kind], thread, name, at)
            if kind == records.ACQUIRE:
                self.calls[thread].update(
                    shared=other != 0, max_holders=max(other, 0), wait_ms=number,
                    exclusion=self.rules.is_exclusive_promised(name),
                    fences=self.rules.are_fences_promised(name, at))
        elif kind in ENDS and thread in self.calls:
            self._return(at, number, other, thread, status, kind)
        elif kind == records.TOKEN:
            self.tokens[thread] = f"{number % 2**64:016x}{other % 2**64:016x}"
        elif kind == records.SAMPLE:
            if other > self.certain.get(thread, 0):  # else it tells nothing new
                self.certain[thread] = other
                look = self._make("look", thread, name, at)
                self.done.append({**look, "end": at, "certain_until": other})
        elif kind == records.EVENT and number == records.EVENT_LOST:
            self.done.append({**self._make("lost", None, name, at), "end": at})
        elif kind == records.WRITE:
            self.writes[number] = self._make("update", thread, name, at, id=number, read=other)
        elif kind == records.WRITTEN and number in self.writes:
            self.done.append({**self.writes.pop(number), "end": at, "result": UPDATES[status]})

    def _return(self, at, number, other, thread, status, kind):
        call = self.calls.pop(thread)
        call.update(end=at, status=status)
        if kind == records.ACQUIRED and status == records.OK:
            call.update(token=self.tokens.pop(thread, None), fence=number)
        if other and kind != records.RELEASED:
            call["certain_until"] = other
            self.certain[thread] = max(other, self.certain.get(thread, 0))
        if kind == records.RELEASED:
            self.certain.pop(thread, None)
        self.done.append(call)


def returned(operation):
    """A call whose process was killed counts from its begin."""
    return operation["begin"] if operation["end"] is None else operation["end"]


def operations(processes, rules, run):
    """processes: (number, records). The first line is about the run. Times count from the begin of
    the run: a number of awk and JavaScript has 53 bits."""
    done = [each for number, history in processes
            for each in Operations(number, history, rules).done]
    done.sort(key=returned)
    origin = min((each["begin"] for each in done), default=0)
    yield {"call": "run", **run, "lease_ms": rules.lease // records.MS,
           "fence_slack": rules.fence_slack}
    for each in done:
        for time in "begin", "end", "certain_until":
            if each.get(time):
                each[time] -= origin
        yield each


def operations_of(folder):
    folder = pathlib.Path(folder)
    run, rules = checker.read_run(folder)
    about = {name: run[name] for name in ("scenario", "server", "seed", "seconds")}
    return operations(checker.read_histories(folder, run), rules, about)


# -- Jepsen ---------------------------------------------------------------------------------------


def edn(value):
    """A value of JSON as EDN; the keys of a map become keywords."""
    if isinstance(value, dict):
        return "{" + ", ".join(f":{key.replace('_', '-')} {edn(each)}"
                               for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(map(edn, value)) + "]"
    if isinstance(value, str) and value.startswith(":"):
        return value
    return "nil" if value is None else json.dumps(value)


class Jepsen:
    """Calls and returns as events of Jepsen. A thread is a process; after an :info it goes on as a
    new one, as Jepsen wants it. A thread that takes two names in one step is a process for each."""

    def __init__(self):
        self.events, self.numbers, self.held = [], {}, {}

    def add(self, operation):
        names = operation["name"].split(" ")
        for name in names:
            thread = operation["process"], operation["thread"]
            self._add((*thread, name) if len(names) > 1 else thread, {**operation, "name": name})

    def _add(self, thread, operation):
        call = operation["call"]
        if call == "acquire":
            result = {0: ":ok", None: ":info"}.get(operation.get("status"), ":fail")
            value = {name: operation[name] for name in (
                "token", "fence", "shared", "max_holders", "certain_until") if name in operation}
            self._pair(thread, ":acquire", result, operation, None, value)
            if result == ":ok":
                self.held[thread] = {**operation}
        elif call == "update":
            result = {"ok": ":ok", "refused": ":fail", "not begun": ":fail"}.get(
                operation.get("result"), ":info")
            change = [operation["read"], operation["id"]]
            self._pair((*thread, "data"), ":cas", result, operation, change, change)
        elif thread in self.held:
            hold = self.held[thread]
            hold["certain_until"] = max(hold.get("certain_until") or 0,
                                        operation.get("certain_until") or 0)
            if call == "release":
                self._end(thread, self.held.pop(thread), operation["begin"])

    def _end(self, thread, hold, at):
        """A hold ends when its release is called, or when it is not certain any more."""
        end = {"begin": min(at, max(hold["end"], hold["certain_until"] or 0)), "name": hold["name"]}
        end["end"] = end["begin"]
        value = {"token": hold["token"], "fence": hold["fence"]}
        self._pair(thread, ":release", ":ok", end, value, value)

    def _pair(self, thread, name, result, operation, asked, got):
        number = self.numbers.setdefault(thread, len(self.numbers))
        if result == ":info":
            self.numbers[thread, number] = self.numbers.pop(thread)
        key = operation["name"]
        for kind, at, value in ((":invoke", operation["begin"], asked),
                                (result, operation["end"], got if result == ":ok" else asked)):
            self.events.append((float("inf") if at is None else at, len(self.events), {
                "process": number, "type": kind, "f": name, "value": [key, value]}))

    def lines(self):
        for thread in list(self.held):
            self._end(thread, self.held.pop(thread), float("inf"))
        last = max((at for at, _, _ in self.events if at != float("inf")), default=0)
        for index, (at, _, event) in enumerate(sorted(self.events)):
            yield edn({"index": index, "time": min(at, last), **event})


# -- the second judge -----------------------------------------------------------------------------


def judge(lines):
    """What judge.awk counts, by name, and what it says."""
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
    done = subprocess.run(["awk", "-f", JUDGE], input=text, text=True, stdout=subprocess.PIPE)
    counts = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines()
                  if not line.startswith(" "))
    return {name: int(count) for name, count in counts.items()}, done.stdout


def compare(report, lines):
    """Where the second judge counts something else than the first, as sentences."""
    counts, _ = judge(lines)
    for name, count in counts.items():
        if count != report.counts[name]:
            yield f"{name}: {report.counts[name]} by checker.py, {count} by judge.awk"


def main():
    words = [word for word in sys.argv[1:] if word != "--edn"]
    if "--help" in sys.argv or len(words) != 1:
        print(__doc__)
        return 0 if "--help" in sys.argv else 2
    lines = operations_of(words[0])
    if "--edn" in sys.argv:
        jepsen = Jepsen()
        for operation in lines:
            jepsen.add(operation) if operation["call"] != "run" else None
        print("\n".join(jepsen.lines()))
    else:
        for operation in lines:
            print(json.dumps(operation))
    return 0


if __name__ == "__main__":
    sys.exit(main())
