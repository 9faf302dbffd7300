"""The bytecode that is written before workers start is what pytest loads."""

import os
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tools import bytecode


def test_bytecode_of_a_test_is_loaded_until_it_changes(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The written bytecode has rewritten assertions and is loaded; that of a changed file counts as missing."""
    file = tmp_path / "test_one.py"
    file.write_text("def test_one():\n    assert 1 == 2\n")
    assert not bytecode._is_compiled(file)
    bytecode._rewrite(pytestconfig, [file])
    assert bytecode._is_compiled(file)
    code = rewrite._read_pyc(file, bytecode._bytecode(file))
    assert code is not None
    assert "@pytest_ar" in code.co_names
    later_s = file.stat().st_mtime + 60
    os.utime(file, (later_s, later_s))
    assert not bytecode._is_compiled(file)
