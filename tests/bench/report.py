"""What a benchmark says: tables to read, and the same as data.

The first row of a table is the subject, every other row an alternative. Sample i of all rows was
taken at about the same time, so the ratio of two rows is the median of the ratios of their samples:
a slow moment of the machine then hits both sides of it. A bar is a promise about such a ratio.
"""

import json
import statistics


class Bar:
    def __init__(self, relation, limit):
        self.relation = relation  # "<=" or ">="
        self.limit = limit

    def is_met(self, ratio):
        return ratio <= self.limit if self.relation == "<=" else ratio >= self.limit

    def __str__(self):
        return f"{self.relation} {self.limit:.2f}"


class Row:
    def __init__(self, name, samples, details):
        self.name = name
        self.samples = samples
        self.details = details
        self.median = statistics.median(samples)
        self.spread = (max(samples) - min(samples)) / self.median


class Table:
    def __init__(self, title, method, unit, bars=None):
        """bars: the name of a row -> the bar for the subject's ratio to it."""
        self.title = title
        self.method = method
        self.unit = unit
        self.bars = bars or {}
        self.rows = []
        self.notes = []

    def add(self, name, samples, **details):
        """details: further data about the samples, kept but not shown."""
        self.rows.append(Row(name, samples, details))

    def ratio(self, row):
        """How many times the row's value the subject's is."""
        pairs = zip(self.rows[0].samples, row.samples)
        return statistics.median(subject / other for subject, other in pairs)

    def verdicts(self):
        """The name of a row -> whether its bar is met."""
        return {row.name: self.bars[row.name].is_met(self.ratio(row))
                for row in self.rows if row.name in self.bars}

    def show(self):
        width = max(len(row.name) for row in self.rows)
        print(f"\n{self.title}\n  {self.method}\n")
        print(f"  {'':{width}}  {self.unit:>14}  spread  dlock / this")
        verdicts = self.verdicts()
        for row in self.rows:
            line = f"  {row.name:{width}}  {row.median:14,.0f}  {row.spread:6.1%}"
            if row is not self.rows[0]:
                line += f"  {self.ratio(row):12.2f}"
            if row.name in verdicts:
                verdict = "PASS" if verdicts[row.name] else "FALLS SHORT"
                line += f"   bar {self.bars[row.name]}  {verdict}"
            print(line)
        for note in self.notes:
            print(f"  {note}")

    def as_data(self):
        verdicts = self.verdicts()
        rows = []
        for row in self.rows:
            data = {"name": row.name, "median": row.median, "spread": row.spread,
                    "samples": row.samples, "dlock_ratio": self.ratio(row), **row.details}
            if row.name in verdicts:
                data["bar"] = str(self.bars[row.name])
                data["is_met"] = verdicts[row.name]
            rows.append(data)
        return {"title": self.title, "method": self.method, "unit": self.unit, "rows": rows,
                "notes": self.notes}


def write(path, about, results):
    """results: the name of a scenario -> its tables."""
    data = {**about, "scenarios": {name: [table.as_data() for table in tables]
                                   for name, tables in results.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n")
