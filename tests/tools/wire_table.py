"""Write the table of streams in docs/agent.md from the corpus in tests/testdata/wire.

usage: PYTHONPATH=tests wire_table.py
"""

import re
from pathlib import Path

from testdata.wire_corpus import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "agent.md"
BEGIN, END = "<!-- streams: begin (tests/tools/wire_table.py) -->", "<!-- streams: end -->"


def current(text: str) -> str:
    """Return the page with the table that follows from the corpus."""
    return re.sub(f"(?s){re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n{table()}\n{END}", text)


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text()))
