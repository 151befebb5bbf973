"""Plots what bench.py has measured, as SVG and PNG, by gnuplot; --help shows the options.

A plot is a row of PLOTS: one column of a report.Curves, which is found by how its title begins.
What the results do not have is skipped, and said. The same results always make the same SVG.

An opaque light card is readable on a light and on a dark page. Whoever does not see the colours
tells the lines by their points and dashes, and by their order, which the legend has as well.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
Plot = collections.namedtuple("Plot", "name, curves, column, title, x, y, is_logarithmic")

HOT, HANDOVER, KEPT = "One hot lock", "Hand-over", "A crowd of locks is kept"
PLOTS = [
    Plot("hot-rate", HOT, "per second", "One hot lock: how often it is taken",
         "threads that want it", "acquisitions per second", True),
    Plot("hot-p99", HOT, "p99 ms", "One hot lock: the wait that 99 of 100 stay within",
         "threads that want it", "wait, 99th percentile, ms", True),
    Plot("hot-commands", HOT, "commands each", "One hot lock: what the server is asked",
         "threads that want it", "commands per acquisition", False),
    Plot("handover-us", HANDOVER, "us", "Release and hand-over: the time it takes",
         "clients that wait", "time, µs", True),
    Plot("handover-instructions", HANDOVER, "instructions",
         "Release and hand-over: what it costs the server",
         "clients that wait", "instructions of the server", True),
    Plot("crowd-kept", KEPT, "ms a second", "Locks that are kept: what the server does for them",
         "locks", "processor time, ms in each second", True),
]
IN_README = ["hot-rate", "hot-p99", "crowd-kept"]

SIZE = 760, 400
INK, FAINT, CARD = "#24292f", "#d8dee4", "#ffffff"
# By Okabe and Ito, without their yellow; the last two are darker and lighter greys.
COLOURS = ["#0072b2", "#009e73", "#d55e00", "#e69f00", "#56b4e9", "#cc79a7", "#000000", "#888888"]
DASHES = ["solid", "(10,4)", "(3,3)", "(12,4,3,4)"]
POINTS = [7, 5, 9, 11, 13, 6, 4, 8]
TERMINALS = {
    "svg": f'svg size {SIZE[0]},{SIZE[1]} font "sans-serif,13" background "{CARD}"',
    "png": f'pngcairo size {2 * SIZE[0]},{2 * SIZE[1]} fontscale 2 linewidth 2 pointscale 2 '
           f'font "sans-serif,10" background "{CARD}"',
}


def _fail(why):
    sys.exit(f"plots: {why}")


def _read_curves(path):
    """The title of each Curves in the results -> the name of a line -> number -> figures."""
    try:
        scenarios = json.loads(path.read_text())["scenarios"]
        return {table["title"]: {line["name"]: {point["number"]: point["figures"]
                                                for point in line["points"]}
                                 for line in table["lines"]}
                for tables in scenarios.values() for table in tables if "lines" in table}
    except FileNotFoundError:
        _fail(f'there is no {path}; "make bench" writes it')
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _fail(f'{path} is not what "make bench" writes: {error!r}')


def _points(plot, curves):
    """The name of each line -> its points, in the order of the results; or None, and why not."""
    title = next((title for title in curves if title.startswith(plot.curves)), None)
    if title is None:
        return None, f'no curves "{plot.curves}..." in the results'
    lines = {name: sorted((number, figures[plot.column]) for number, figures in points.items()
                          if figures.get(plot.column, 0) > 0)
             for name, points in curves[title].items()}
    if not any(len(points) > 1 for points in lines.values()):
        return None, f'no line with two points of "{plot.column}" in "{title}"'
    return {name: points for name, points in lines.items() if points}, ""


def _style(i):
    return (f'linewidth {3 if i == 0 else 2} dashtype {DASHES[i % 4]} pointtype {POINTS[i % 8]} '
            f'pointsize 0.7 linecolor rgb "{COLOURS[i % 8]}"')


def _logarithmic_y(lines):
    """The axis from one tic to another, at 1, 10, 100 and, if these are few, at 2 and 5 too."""
    values = [y for points in lines.values() for _, y in points]
    lowest, highest = min(values), max(values)
    digits = (1,) if highest / lowest > 1000 else (1, 2, 5)
    tics = [float(f"{digit}e{power}") for power in range(-6, 10) for digit in digits]
    begin = max(tic for tic in tics if tic < lowest)
    end = min(tic for tic in tics if tic >= highest)
    labels = ", ".join(f'"{tic:,.9g}" {tic:g}' for tic in tics if begin <= tic <= end)
    # A little more than that: else gnuplot may leave out the first tic or the last.
    return f"set logscale y\nset yrange [{begin * 0.999}:{end * 1.001}]\nset ytics ({labels})"


def _script(plot, lines, terminal, path):
    numbers = sorted({number for points in lines.values() for number, _ in points})
    tics = ", ".join(f'"{number:,}" {number}' for number in numbers)
    styles = {name: _style(i) for i, name in enumerate(lines)}
    order = sorted(lines, key=lambda name: -lines[name][-1][1])  # as they end at the right
    blocks = [f"$line{i} << END\n" + "".join(f"{x} {y:.6g}\n" for x, y in lines[name]) + "END\n"
              for i, name in enumerate(order)]
    drawn = [f'$line{i} using 1:2 with linespoints title "{name}" {styles[name]}'
             for i, name in enumerate(order)]
    return "".join(blocks) + f"""\
set encoding utf8
set terminal {terminal}
set output "{path}"
set title "{plot.title}" offset 0,0.3 textcolor rgb "{INK}"
set xlabel "{plot.x}" textcolor rgb "{INK}"
set ylabel "{plot.y}{' (logarithmic)' if plot.is_logarithmic else ''}" textcolor rgb "{INK}"
set border 3 linecolor rgb "{INK}"
set xtics nomirror out ({tics}) textcolor rgb "{INK}"
set ytics nomirror out textcolor rgb "{INK}"
set grid ytics linetype 1 linecolor rgb "{FAINT}"
set logscale x
set xrange [{numbers[0]}:{numbers[-1]}]
{_logarithmic_y(lines) if plot.is_logarithmic else 'set yrange [0:]'}
set key at screen 0.66, 0.55 left center Left reverse noenhanced spacing 1.3 \
    textcolor rgb "{INK}"
set rmargin at screen 0.64
set tmargin 3
set bmargin 4
plot {', '.join(drawn)}
"""


def _draw(plot, lines, directory):
    for ending, terminal in TERMINALS.items():
        path = directory / f"{plot.name}.{ending}"
        try:
            subprocess.run(["gnuplot"], input=_script(plot, lines, terminal, path), text=True,
                           check=True)
        except FileNotFoundError:
            _fail("gnuplot is missing; on Debian: apt-get install gnuplot-nox")
        except subprocess.CalledProcessError:
            _fail(f"gnuplot could not draw {path}")
    _tidy(directory / f"{plot.name}.svg", plot.title)


def _tidy(svg, title):
    """Its title is what it shows, and gnuplot's version does not matter."""
    text = re.sub(r"\s*<desc>Produced by .*?</desc>", "", svg.read_text())
    svg.write_text(re.sub(r"<title>Gnuplot</title>", f"<title>{title}</title>", text))


def _parse_arguments():
    parser = argparse.ArgumentParser(description="Plots what bench.py has measured.")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build/bench/results.json")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/bench",
                        help="the directory for all plots, as SVG and PNG")
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "tests/bench/plots",
                        help="the directory for those that the README shows, as SVG")
    return parser.parse_args()


def main():
    arguments = _parse_arguments()
    curves = _read_curves(arguments.results)
    for directory in (arguments.output, arguments.keep):
        directory.mkdir(parents=True, exist_ok=True)
    count = 0
    for plot in PLOTS:
        lines, why_not = _points(plot, curves)
        if lines is None:
            print(f"{plot.name}: skipped, {why_not}")
            continue
        _draw(plot, lines, arguments.output)
        count += 1
        print(f"{plot.name}: {arguments.output / plot.name}.svg and .png")
        if plot.name in IN_README:
            shutil.copy(arguments.output / f"{plot.name}.svg", arguments.keep)
    if count == 0:
        _fail(f"nothing to plot in {arguments.results}")


if __name__ == "__main__":
    main()
