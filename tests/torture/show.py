"""show.py FOLDER PROCESS [FROM TO] [NAME]: the records of one worker, one line each, for people.

FROM and TO are seconds on CLOCK_BOOTTIME, as the checker prints them. Faults of that time are shown
between the records.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from records import Kind, name_text, read_file  # noqa: E402


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    folder, process, *rest = sys.argv[1:]
    begin, end = (float(word) for word in rest[:2]) if len(rest) >= 2 else (0, float("inf"))
    name = rest[2] if len(rest) > 2 else None
    lines = []
    for at, number, other, which, thread, status, kind in read_file(
            pathlib.Path(folder) / f"worker-{process}.history"):
        if begin <= at / 1e9 <= end and (name is None or not which or name_text(which) == name):
            if other > 1e12:  # a time
                other = f"{other / 1e9:.6f}"
            what = name_text(which) if which else "-"
            lines.append((at, f"thread {thread:5} {Kind(kind).name:8} {what:5} status {status} "
                              f"number {number} other {other}"))
    for path in pathlib.Path(folder).glob("faults*.jsonl"):
        for fault in map(json.loads, path.read_text().splitlines()):
            if begin <= fault["to"] / 1e9 and fault["at"] / 1e9 <= end:
                lines.append((fault["at"], f"FAULT {fault['kind']} of {fault['target']} until "
                                           f"{fault['to'] / 1e9:.6f}"))
    for at, line in sorted(lines):
        print(f"{at / 1e9:.6f} {line}")


if __name__ == "__main__":
    sys.exit(main())
