"""What the scenarios have found, as a file, and the bars among it as a list.

Each scenario has its own date, duration and commit in the file: a run of a few replaces what it had
of these and keeps what it had of the others, as long as machine and server are the same.
"""

import json


def _is_comparable(data, about):
    """Whether figures in both were taken with the same machine and server."""
    return (data.get("machine") == about["machine"]
            and data.get("versions", {}).get("server") == about["versions"]["server"])


class Results:
    def __init__(self, path, about):
        """about: see machine.describe()."""
        self.path = path
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.dropped = [] if _is_comparable(kept, about) else list(kept.get("scenarios", {}))
        if self.dropped:
            kept = {}
        self.data = {**about, **{part: kept.get(part, {}) for part in ("taken", "scenarios")}}
        self.tables = {}

    def add(self, name, tables, **taken):
        """taken: when, in which time, from which commit."""
        self.tables[name] = tables
        self.data["taken"][name] = taken
        self.data["scenarios"][name] = [table.as_data() for table in tables]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.data, indent=2) + "\n")

    def kept(self):
        """The names of those that are in the file from before."""
        return [name for name in self.data["scenarios"] if name not in self.tables]

    def show_bars(self):
        """One line for each; the result is whether all are met."""
        bars = [(f"{name}: {sentence}", value, bar)
                for name, tables in self.tables.items()
                for table in tables for sentence, value, bar in table.judged()]
        width = max([len(sentence) for sentence, _, _ in bars], default=0)
        for sentence, value, bar in bars:
            verdict = "PASS" if bar.is_met(value) else "FALLS SHORT"
            print(f"  {sentence:{width}}  {value:8.2f}  {str(bar):>10}  {verdict}")
        return all(bar.is_met(value) for _, value, bar in bars)
