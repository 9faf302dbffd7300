"""The cases that every client of route tables passes, `clients/cases.json`, by their subject; `NOT_LITELLM` has the
subjects that cannot apply to the callback of LiteLLM, with the reasons.
"""

import json
from pathlib import Path
from typing import Any

import pytest

_FILE: dict[str, Any] = json.loads((Path(__file__).resolve().parents[2] / "clients" / "cases.json").read_text())
_FILE.pop("about")
NOT_LITELLM: dict[str, str] = _FILE.pop("litellm")
NOT_LITELLM.pop("about")
CASES: dict[str, list[dict[str, Any]]] = _FILE


def cases(subject: str) -> pytest.MarkDecorator:
    """A parameter `case` for each case of a subject."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["law"]) for case in CASES[subject]])


def cases_of_litellm(subject: str) -> pytest.MarkDecorator:
    """As `cases`, for the callback of LiteLLM: without those that cannot apply to it, and with its differences."""
    found = [case for case in CASES[subject] if not isinstance(case.get("litellm"), str)]
    return pytest.mark.parametrize("case", [pytest.param(one | one.get("litellm", {}), id=one["law"]) for one in found])
