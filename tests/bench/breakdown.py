"""Where the instructions of an acquire and of a release go, function by function.

Not a scenario: nothing is compared. It is for whoever wants to make the module cheaper. Acquires
and releases come in separate pipelines here, so that each can be counted for itself.
"""

import collections
import re

import ways
from instructions import CountedServer, total

LOCK_COUNT = 2048
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


def _show(title, path):
    costs = _functions(path)
    print(f"\n{title}: {total(path) / LOCK_COUNT:,.0f} instructions each")
    for column, kind in enumerate(("in the function itself", "with all that it calls")):
        print(f"\n  {kind}")
        for function in sorted(costs, key=lambda f: -costs[f][column])[:SHOWN]:
            print(f"  {costs[function][column] / LOCK_COUNT:8,.0f}  {function}")


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
            _show(title, counted.count(portions, ways.PIPELINE))
