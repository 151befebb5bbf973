"""What a benchmark says: tables to read, and the same as data.

Table: one figure per row. The first row is the subject, every other row an alternative. Sample i of
all rows was taken at about the same time, so the ratio of two rows is the median of the ratios of
their samples: a slow moment of the machine then hits both sides of it. A bar is a promise about
such a ratio.

Sheet: several figures per row, and under them what was promised about any of them.

Curves: how figures depend on a number, such as that of the threads: a line for each way, a point
for each number. Plots are made of these.
"""

import math
import operator
import statistics


class Bar:
    RELATIONS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}

    def __init__(self, relation, limit):
        self.relation = relation
        self.limit = limit

    def is_met(self, value):
        return self.RELATIONS[self.relation](value, self.limit)

    def __str__(self):
        return f"{self.relation} {self.limit:.2f}"


def median_ratio(samples, others):
    return statistics.median(sample / other for sample, other in zip(samples, others))


def percentile(values, part):
    """The smallest value that so large a part (0 to 1) of all does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def _verdict(bar, is_met):
    return f"   bar {bar}  {'PASS' if is_met else 'FALLS SHORT'}"


class Row:
    def __init__(self, name, samples, details):
        self.name = name
        self.samples = samples
        self.details = details
        self.median = statistics.median(samples)
        self.spread = (max(samples) - min(samples)) / self.median


class Table:
    def __init__(self, title, method, unit, bars=None, subject="dlock", decimals=0):
        """bars: the name of a row -> the bar for the subject's ratio to it."""
        self.title = title
        self.method = method
        self.unit = unit
        self.subject = subject  # in short
        self.decimals = decimals
        self.bars = bars or {}
        self.rows = []
        self.notes = []

    def add(self, name, samples, **details):
        """details: further data about the samples, kept but not shown."""
        self.rows.append(Row(name, samples, details))

    def ratio(self, row):
        """How many times the row's value the subject's is."""
        return median_ratio(self.rows[0].samples, row.samples)

    def verdicts(self):
        """The name of a row -> whether its bar is met."""
        return {row.name: self.bars[row.name].is_met(self.ratio(row))
                for row in self.rows if row.name in self.bars}

    def judged(self):
        """Of each bar: what it is about, the value, the bar."""
        return [(f"{self.unit}, {self.subject} / {row.name}", self.ratio(row), self.bars[row.name])
                for row in self.rows if row.name in self.bars]

    def show(self):
        width = max(len(row.name) for row in self.rows)
        print(f"\n{self.title}\n  {self.method}\n")
        ratio = f"{self.subject} / this"
        print(f"  {'':{width}}  {self.unit:>14}  spread  {ratio}")
        verdicts = self.verdicts()
        for row in self.rows:
            line = f"  {row.name:{width}}  {row.median:14,.{self.decimals}f}  {row.spread:6.1%}"
            if row is not self.rows[0]:
                line += f"  {self.ratio(row):{len(ratio)}.2f}"
            if row.name in verdicts:
                line += _verdict(self.bars[row.name], verdicts[row.name])
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


class Promise:
    def __init__(self, sentence, value, bar):
        self.sentence = sentence
        self.value = value
        self.bar = bar
        self.is_met = bar.is_met(value)


class _Promises:
    """What is promised about the figures of a table, whichever they are."""

    def __init__(self):
        self.promises = []
        self.notes = []

    def promise(self, sentence, value, bar):
        self.promises.append(Promise(sentence, value, bar))

    def verdicts(self):
        return {promise.sentence: promise.is_met for promise in self.promises}

    def judged(self):
        """As in a Table."""
        return [(promise.sentence, promise.value, promise.bar) for promise in self.promises]

    def _show_promises(self):
        if self.promises:
            print()
        width = max([len(promise.sentence) for promise in self.promises], default=0)
        for promise in self.promises:
            verdict = _verdict(promise.bar, promise.is_met)
            print(f"  {promise.sentence:{width}}  {promise.value:8.2f}{verdict}")
        for note in self.notes:
            print(f"  {note}")

    def _promises_as_data(self):
        return {"promises": [{"sentence": promise.sentence, "value": promise.value,
                              "bar": str(promise.bar), "is_met": promise.is_met}
                             for promise in self.promises],
                "notes": self.notes}


class Sheet(_Promises):
    def __init__(self, title, method, columns):
        """columns: the name of each -> the format of its figures."""
        super().__init__()
        self.title = title
        self.method = method
        self.columns = columns
        self.rows = []

    def add(self, name, figures, **details):
        """figures: one for each column, in order; details: further data, kept but not shown."""
        self.rows.append((name, dict(zip(self.columns, figures)), details))

    def show(self):
        width = max(len(name) for name, _, _ in self.rows)
        print(f"\n{self.title}\n  {self.method}\n")
        print(f"  {'':{width}}" + "".join(f"  {column:>8}" for column in self.columns))
        for name, figures, _ in self.rows:
            cells = [f"  {format(value, self.columns[column]):>{max(8, len(column))}}"
                     for column, value in figures.items()]
            print(f"  {name:{width}}{''.join(cells)}")
        self._show_promises()

    def as_data(self):
        return {"title": self.title, "method": self.method,
                "rows": [{"name": name, "figures": figures, **details}
                         for name, figures, details in self.rows],
                **self._promises_as_data()}


class Curves(_Promises):
    def __init__(self, title, method, across, columns):
        """across: what the number is that the figures depend on; columns: as in a Sheet."""
        super().__init__()
        self.title = title
        self.method = method
        self.across = across
        self.columns = columns
        self.details = {}  # further data, kept but not shown
        self.lines = {}  # its name -> number -> column -> samples

    def add(self, line, number, samples):
        """samples: column -> one figure for each round; not every point has every column."""
        self.lines.setdefault(line, {}).setdefault(number, {}).update(samples)

    def median(self, line, number, column):
        return statistics.median(self.lines[line][number][column])

    def ratio(self, column, line, other, number):
        """How many times the other's figure that of the line is."""
        return median_ratio(*[self.lines[name][number][column] for name in (line, other)])

    def show(self):
        numbers = sorted({number for points in self.lines.values() for number in points})
        width = max(len(name) for name in self.lines)
        print(f"\n{self.title}\n  {self.method}")
        for column, form in self.columns.items():
            cells = "".join(f"  {number:>11,}" for number in numbers)
            print(f"\n  {column}, by {self.across}\n  {'':{width}}{cells}")
            for name, points in self.lines.items():
                if not any(column in samples for samples in points.values()):
                    continue
                cells = [format(self.median(name, number, column), form)
                         if column in points.get(number, ()) else "" for number in numbers]
                print(f"  {name:{width}}" + "".join(f"  {cell:>11}" for cell in cells))
        self._show_promises()

    def as_data(self):
        lines = [{"name": name,
                  "points": [{"number": number,
                              "figures": {column: statistics.median(values)
                                          for column, values in samples.items()},
                              "samples": samples}
                             for number, samples in points.items()]}
                 for name, points in self.lines.items()]
        return {"title": self.title, "method": self.method, "across": self.across, "lines": lines,
                **self.details, **self._promises_as_data()}
