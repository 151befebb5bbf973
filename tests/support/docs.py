"""scripts/check-docs, as a module."""

import importlib.machinery
import importlib.util

from support.server import ROOT


def _load():
    loader = importlib.machinery.SourceFileLoader("check_docs", str(ROOT / "scripts/check-docs"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_docs", loader))
    loader.exec_module(module)
    return module


checker = _load()
