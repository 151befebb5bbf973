"""The export of histories: what a line has, what Jepsen gets, and that the second judge, which sees
nothing but the export, counts what the first one counts, in histories of which many are wrong."""

import json
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import export  # noqa: E402
import records  # noqa: E402
from checker import Rules, check  # noqa: E402
from records import MS, Process  # noqa: E402
from test_checker import IN_DOUBT, LIMIT, SHARED, TIMEOUT, History  # noqa: E402

NAMES = {"x0": (0,), "x1": (0,), "a1 a2": (0,), "a2 a3": (0,), "h0": (0,), "s0": (0,),
         "w0": (0, SHARED), "p0": (LIMIT,)}


def lines_of(*histories, rules=None):
    processes = [(each.number, sorted(each.records, key=lambda record: record[0]))
                 for each in histories]
    return list(export.operations(processes, rules or Rules(), {"scenario": "test"}))


def jepsen_of(*histories):
    jepsen = export.Jepsen()
    for line in lines_of(*histories)[1:]:
        jepsen.add(line)
    return list(jepsen.lines())


def test_a_line_has_an_operation_with_its_begin_and_its_end():
    history = History(3).add(5, records.ACQUIRE, "p1", 1000, LIMIT, thread=2)
    history.add(6.5, records.TOKEN, "p1", 0x12, -1, thread=2)
    history.add(7, records.ACQUIRED, "p1", 100, 90 * MS, thread=2)
    history.add(8, records.SAMPLE, "p1", other=95 * MS, thread=2)
    history.add(9, records.RELEASE, "p1", thread=2)
    head, acquire, look, release = lines_of(history)
    assert head == {"call": "run", "scenario": "test", "lease_ms": 600, "fence_slack": 0}
    assert acquire == {
        "process": 3, "thread": 2, "call": "acquire", "name": "p1", "begin": 0, "end": 2 * MS,
        "shared": True, "max_holders": LIMIT, "wait_ms": 1000, "exclusion": True, "fences": True,
        "status": 0, "token": "0000000000000012ffffffffffffffff", "fence": 100,
        "certain_until": 85 * MS}
    assert (look["call"], look["certain_until"]) == ("look", 90 * MS)
    assert (release["call"], release["begin"], release["end"]) == ("release", 4 * MS, None)


def test_lines_are_in_the_order_in_which_the_operations_returned():
    lines = lines_of(History(0).hold(0, 30, 40, 1), History(1).hold(1, 2, 50, 2, "w0"))[1:]
    times = [export.returned(line) for line in lines]
    assert times == sorted(times)


def random_histories(dice):
    """Holders that mostly take turns, and sometimes do not; fences that mostly rise."""
    histories = [History(number) for number in range(3)]
    free = {(history, thread): 0 for history in histories for thread in range(3)}
    ends, fence = {}, 100
    for _ in range(dice.randrange(5, 60)):
        history, thread = dice.choice(list(free))
        name = dice.choice(list(NAMES))
        asked = free[history, thread] + dice.randrange(20)
        begin = asked + dice.randrange(1, 10)
        if dice.random() < 0.85:
            begin = max(begin, ends.get(name, 0))
        end = begin + dice.randrange(1, 15)
        fence += dice.choice((1, 1, 1, 1, 1, 0, -5, 40))
        mode = dice.choice(NAMES[name])
        how = dice.randrange(8)
        if how == 0:
            history.add(asked, records.ACQUIRE, name, 1000, mode, thread=thread)
            history.add(begin, records.ACQUIRED, name, status=TIMEOUT, thread=thread)
        else:
            history.take(asked, begin, fence, end if how < 3 else end + 500, name, mode, thread)
            history.give_back(end + 9 if how == 1 else end, name, thread, until=end + 500)
            ends[name] = max(end, ends.get(name, 0))
        free[history, thread] = max(begin, end) + 12
    return [history for history in histories if history.records]


def test_both_judges_count_the_same():
    broken = set()
    for seed in range(150):
        dice = random.Random(seed)
        histories = random_histories(dice)
        rules = Rules(unsafe_odd=dice.random() < 0.5, fence_slack=dice.choice((0, 0, 10)),
                      has_fences=dice.random() < 0.9, unsafe_odd_fences=dice.random() < 0.5)
        for each in histories:
            each.records.sort(key=lambda record: record[0])
        report = check([Process(each.number, each.records, rules.bounds) for each in histories],
                       rules)
        assert not list(export.compare(report, lines_of(*histories, rules=rules))), seed
        broken |= {name for name, count in report.counts.items() if count}
    assert {"held twice", "held twice, not promised", "fences back",
            "fences back, not promised"} <= broken


def test_the_second_judge_names_what_it_found():
    _, text = export.judge(lines_of(History(0).hold(0, 1, 10, 100), History(1).hold(2, 5, 20, 99)))
    assert re.search("held twice: x0 of process 1 with fence 99", text), text


def test_a_judge_that_differs_is_noticed():
    lines = lines_of(History(0).hold(0, 1, 10, 100), History(1).hold(2, 5, 20, 101))
    wrong = [{**line, "exclusion": False} if line["call"] == "acquire" else line for line in lines]
    report = check([], Rules())
    report.counts.update({"grants": 2, "held twice": 1})
    assert not list(export.compare(report, lines))
    assert len(list(export.compare(report, wrong))) == 2


def test_jepsen_gets_calls_and_returns_in_order():
    events = jepsen_of(History(0).hold(0, 1, 10, 100), History(1).hold(2, 11, 20, 101))
    words = [re.findall(r":process (\d+), :type :(\w+), :f :(\w+)", event)[0]
             for event in events]
    assert words == [
        ("0", "invoke", "acquire"), ("0", "ok", "acquire"), ("1", "invoke", "acquire"),
        ("0", "invoke", "release"), ("0", "ok", "release"), ("1", "ok", "acquire"),
        ("1", "invoke", "release"), ("1", "ok", "release")]
    assert events[1] == (
        '{:index 1, :time 1000000, :process 0, :type :ok, :f :acquire, :value ["x0" {:token nil, '
        ':fence 100, :shared false, :max-holders 0, :certain-until 510000000}]}')


def test_for_jepsen_a_hold_ends_when_it_is_not_certain_any_more():
    killed = History(0).take(0, 1, 100, until=50)
    late = History(1).take(0, 1, 100, until=50, name="x1").give_back(90, "x1")
    for history, name in (killed, "x0"), (late, "x1"):
        assert any(f':time 50000000, :process 0, :type :ok, :f :release, :value ["{name}"' in event
                   for event in jepsen_of(history))


def test_for_jepsen_a_thread_is_another_process_after_a_call_without_a_result():
    history = History(0).write(0, 1, 0, IN_DOUBT).write(5, 2, 1, 0).write(9, 3, 2)
    words = [re.findall(r":process (\d+), :type :(\w+).*(\[\d.*?\])\]", event)[0]
             for event in jepsen_of(history)]
    assert words == [("0", "invoke", "[0 1]"), ("0", "info", "[0 1]"), ("1", "invoke", "[1 2]"),
                     ("1", "ok", "[1 2]"), ("1", "invoke", "[2 3]"), ("1", "info", "[2 3]")]


def test_every_line_is_json(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({
        "scenario": "single", "server": "installed", "seed": 1, "seconds": 1, "workers": 1,
        "rules": {"bounds": {}}}))
    history = History(0).hold(0, 1, 10, 100).write(3, 1, 0, 0)
    (tmp_path / "worker-0.history").write_bytes(
        b"".join(records.RECORD.pack(*record) for record in history.records))
    lines = [json.loads(json.dumps(line)) for line in export.operations_of(tmp_path)]
    assert [line["call"] for line in lines] == ["run", "acquire", "update", "release"]


def test_for_jepsen_a_lock_with_two_names_is_held_by_a_process_for_each():
    history = History(0).hold(0, 1, 10, 100, "a1 a2").hold(20, 21, 30, 101)
    words = [re.findall(r':process (\d+), :type :(\w+), :f :(\w+), :value \["(\w+)"', event)[0]
             for event in jepsen_of(history)]
    for process, name in ("0", "a1"), ("1", "a2"), ("2", "x0"):
        assert [word[1:3] for word in words if word[::3] == (process, name)] == [
            ("invoke", "acquire"), ("ok", "acquire"), ("invoke", "release"), ("ok", "release")]
    assert len(words) == 12
