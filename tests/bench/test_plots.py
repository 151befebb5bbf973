"""What plots.py draws, skips and refuses."""

import json
import pathlib
import shutil
import subprocess
import sys

import plots
import pytest
from report import Curves

pytestmark = pytest.mark.skipif(shutil.which("gnuplot") is None, reason="gnuplot is missing")
NAMES = [plot.name for plot in plots.PLOTS]


def made_up(title, across, numbers, columns):
    curves = Curves(title, "made up", across, {column: ".0f" for column in columns})
    for i, line in enumerate(["dlock WAIT", "polling", "publish"]):
        for number in numbers:
            curves.add(line, number, {column: [(i + 1) * (number + 3)] for column in columns})
    return curves.as_data()


def results(*tables):
    return json.dumps({"scenarios": {"made up": tables}})


HOT = made_up("One hot lock, made up", "threads", [1, 8, 32],
              ["per second", "p99 ms", "commands each"])
HANDOVER = made_up("Hand-over, made up", "waiters", [1, 100, 10_000], ["us", "instructions"])
KEPT = made_up("A crowd of locks is kept, made up", "locks", [1000, 1_000_000], ["ms a second"])


def draw(directory, text):
    """Draw results of this text into directory / "all" and "kept": the finished process."""
    path = directory / "results.json"
    if text is not None:
        path.write_text(text)
    return subprocess.run(
        [sys.executable, pathlib.Path(plots.__file__), "--results", path,
         "--output", directory / "all", "--keep", directory / "kept"],
        capture_output=True, text=True)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A directory with all plots."""
    directory = tmp_path_factory.mktemp("everything")
    done = draw(directory, results(HOT, HANDOVER, KEPT))
    assert (done.returncode, done.stderr) == (0, "")
    return directory


def drawn(directory, ending):
    return sorted(path.stem for path in directory.glob(f"*.{ending}"))


def test_all_plots_are_drawn(everything):
    assert drawn(everything / "all", "svg") == sorted(NAMES)
    assert drawn(everything / "all", "png") == sorted(NAMES)
    assert drawn(everything / "kept", "svg") == sorted(plots.IN_README)


def test_a_plot_has_its_title_units_and_every_line(everything):
    for plot in plots.PLOTS:
        svg = (everything / "all" / f"{plot.name}.svg").read_text()
        for text in (plot.title, plot.x, plot.y, "dlock WAIT", "polling", "publish"):
            assert text in svg, f"{plot.name}: {text}"
        assert f'fill="{plots.CARD}"' in svg, "the card is not opaque"


def test_the_same_results_make_the_same_svg_and_others_are_skipped(everything, tmp_path):
    done = draw(tmp_path, results(HOT))
    assert done.returncode == 0
    assert 'handover-us: skipped, no curves "Hand-over..." in the results' in done.stdout
    assert drawn(tmp_path / "all", "svg") == ["hot-commands", "hot-p99", "hot-rate"]
    for path in (tmp_path / "all").glob("*.svg"):
        assert path.read_text() == (everything / "all" / path.name).read_text()


def test_a_single_number_is_no_plot(tmp_path):
    done = draw(tmp_path, results(made_up("One hot lock", "threads", [8], ["p99 ms"])))
    assert 'hot-p99: skipped, no line with two points of "p99 ms"' in done.stdout
    assert drawn(tmp_path / "kept", "svg") == []


@pytest.mark.parametrize("text, complaint", [
    (None, 'results.json; "make bench" writes it'),
    ("{", 'results.json is not what "make bench" writes'),
    ("[]", 'results.json is not what "make bench" writes'),
    (results({"title": "One hot lock", "lines": [{}]}), 'is not what "make bench" writes'),
    (results(), "nothing to plot in"),
])
def test_missing_or_broken_results_are_refused(tmp_path, text, complaint):
    done = draw(tmp_path, text)
    assert done.returncode == 1
    assert done.stderr.startswith("plots: ") and complaint in done.stderr
    assert "Traceback" not in done.stderr
