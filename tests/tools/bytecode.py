"""Bytecode for the workers of a parallel run of pytest: in a new clone, each of them would compile all modules."""

import compileall
import multiprocessing
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

_REWRITTEN = re.compile(r"/(test_|fixtures/|conftest\.py)")
"""Modules whose assertions pytest rewrites have bytecode of its own, which no public function writes."""


def compile_modules(config: pytest.Config, folders: Sequence[Path]) -> None:
    """Compile the modules in these folders whose bytecode is missing or old, on all cores."""
    for folder in folders:
        compileall.compile_dir(folder, quiet=2, rx=_REWRITTEN, workers=0)
    rewritten = [file for folder in folders for file in folder.rglob("*.py") if _REWRITTEN.search(str(file))]
    old = [file for file in rewritten if not _is_compiled(file)]
    cores = os.cpu_count() or 1
    fork = multiprocessing.get_context("fork")
    compilers = [fork.Process(target=_rewrite, args=(config, old[core::cores])) for core in range(cores if old else 0)]
    for compiler in compilers:
        compiler.start()
    for compiler in compilers:
        compiler.join()


def _is_compiled(file: Path) -> bool:
    bytecode = _bytecode(file)
    return bytecode.exists() and bytecode.stat().st_mtime >= file.stat().st_mtime


def _rewrite(config: pytest.Config, files: Sequence[Path]) -> None:
    state = config.stash[rewrite.assertstate_key]
    for file in files:
        rewrite.try_makedirs(rewrite.get_cache_dir(file))
        source, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(state, code, source, _bytecode(file))


def _bytecode(file: Path) -> Path:
    return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
