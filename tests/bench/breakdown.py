"""Where the instructions of an acquire, a release and a hand-over go, function by function.

Not a scenario: nothing is compared. It is for whoever wants to make the module cheaper. Acquires
and releases come in separate pipelines here, so that each can be counted for itself. The hand-over,
a release while others wait, is the median one of many. It is not in a pipeline, and counted with
the TIME that marks its end.
"""

import collections
import re

import handover
import ways
from instructions import CountedServer, total

LOCK_COUNT = 2048
WAITERS = 100
HAND_OVERS = 31
SHOWN = 40
NAME = re.compile(r"(fn|cfn|ob|cob)=\((\d+)\)(?: (.*))?")


def _functions(path):
    """What a callgrind file says: function -> [its own cost, its cost with all it calls].

    Callgrind writes a name in full once and its number from then on, and a call as two lines: one
    that begins with calls=, and the cost of it all. A function that calls itself counts twice."""
    known = {"fn": {}, "ob": {}}
    costs = collections.defaultdict(lambda: [0, 0])
    binary = function = ""
    is_call = False
    for line in path.read_text().splitlines():
        name = NAME.match(line)
        if name:
            kind = name[1].removeprefix("c")
            if name[3]:
                known[kind][name[2]] = name[3]
            if name[1] == "ob":
                binary = known["ob"][name[2]].rpartition("/")[2]
            elif name[1] == "fn":
                function = f"{known['fn'][name[2]]} [{binary}]"
        elif line.startswith("calls="):
            is_call = True
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            cost = int(line.split()[1])
            costs[function][1] += cost
            if not is_call:
                costs[function][0] += cost
            is_call = False
    return costs


def _show(title, path, count):
    costs = _functions(path)
    print(f"\n{title}: {total(path) / count:,.0f} instructions each")
    for column, kind in enumerate(("in the function itself", "with all that it calls")):
        print(f"\n  {kind}")
        for function in sorted(costs, key=lambda f: -costs[f][column])[:SHOWN]:
            print(f"  {costs[function][column] / count:8,.0f}  {function}")


def _show_hand_over():
    with handover.counted_server() as counted, handover.Ring(counted.server) as ring:
        ring.grow(WAITERS)
        handover.count_hand_overs(counted, ring, 3)  # a first use is dearer
        paths = handover.count_hand_overs(counted, ring, HAND_OVERS)
        _show(f"hand-over with {WAITERS} waiters", sorted(paths, key=total)[HAND_OVERS // 2], 1)


def show(way=ways.DLOCK):
    locks = list(ways.names(LOCK_COUNT))
    steps = {
        "acquire": ways.pipelines([ways.encode(way.acquire(*lock)) for lock in locks]),
        "release": ways.pipelines([ways.encode(way.release(*lock)) for lock in locks]),
    }
    with CountedServer(way) as counted:
        for portions in steps.values():
            counted.count(portions, ways.PIPELINE)  # the tables of the database grow to their size
        for title, portions in steps.items():
            _show(title, counted.count(portions, ways.PIPELINE), LOCK_COUNT)
    _show_hand_over()
