"""The cases that every client of route tables passes, `clients/cases.json`, by their subject."""

import json
from pathlib import Path
from typing import Any

import pytest

CASES: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).resolve().parents[2] / "clients" / "cases.json").read_text()
)
CASES.pop("about")


def cases(subject: str) -> pytest.MarkDecorator:
    """A parameter `case` for each case of a subject."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["law"]) for case in CASES[subject]])
