"""Scripts without a suffix, as modules: scripts/check-docs and others."""

import importlib.machinery
import importlib.util

from support.server import ROOT


def load_script(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"),
                                                  str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


checker = load_script("check-docs")
commands_json = load_script("commands-json")
