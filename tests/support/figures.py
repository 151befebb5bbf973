"""What a test run has measured: told at its end, and kept in the file that DLOCK_FIGURES names."""

import os
import pathlib

_told = []


def tell(figure):
    _told.append(figure)


def write(write_line):
    for figure in _told:
        write_line(figure)
    if "DLOCK_FIGURES" in os.environ:
        text = "".join(f"{figure}\n" for figure in _told)
        pathlib.Path(os.environ["DLOCK_FIGURES"]).write_text(text)
