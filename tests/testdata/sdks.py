"""The SDKs of providers, `sdks.openai` for one, imported at first use: together they take longer than all else that a
test worker imports in order to collect the tests.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import anthropic as anthropic  # noqa: PLC0414  # exported
    import langchain_openai as langchain_openai  # noqa: PLC0414
    import openai as openai  # noqa: PLC0414


def __getattr__(name: str) -> ModuleType:
    if name not in {"anthropic", "langchain_openai", "openai"}:
        raise AttributeError(name)
    return importlib.import_module(name)
