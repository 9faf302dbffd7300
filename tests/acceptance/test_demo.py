"""`isochrone demo`: the main job, end to end, against a world whose truth is known."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 36
PUBLISHED_MS = {"deepseek-v4-flash": -30, "qwen3-32b": -40, "glm-5": -80, "kimi-k2.5": -120}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A demo that has run to its end."""
    folder = tmp_path_factory.mktemp("demo") / "place"
    command = [sys.executable, "-m", "isochrone_client", "demo", "--for", f"{SECONDS}s", "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert not folder.exists()
    return done


def table_after(text: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table that follows `heading`, by their first cell."""
    lines = text[text.index(heading) :].splitlines()[3:]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    rows = rows[: next((n for n, row in enumerate(rows) if row == [""]), len(rows))]
    return {row[0]: row[1:] for row in rows}


def test_it_ends_by_itself_with_its_tables(demo: subprocess.CompletedProcess[str]) -> None:
    """It exits with 0 and shows a leaderboard per region and a differential per region against the baseline."""
    assert demo.returncode == 0, demo.stderr
    for region in ("us-east-2", "ap-southeast-1", "eu-central-1"):
        assert f"from {region}" in demo.stdout
    assert "ap-southeast-1 against us-east-2" in demo.stdout
    assert "eu-central-1 against us-east-2" in demo.stdout
    assert max(map(len, demo.stdout.splitlines())) <= 100


@pytest.mark.parametrize("model", PUBLISHED_MS)
def test_published_differences_come_out_of_the_samples(demo: subprocess.CompletedProcess[str], model: str) -> None:
    """Singapore against US East comes out within 3 ms of the published figure the world was made from."""
    true_ms, measured_ms, *_ = table_after(demo.stdout, "ap-southeast-1 against the baseline, ttft")[model]
    assert float(true_ms) == PUBLISHED_MS[model]
    assert abs(float(measured_ms) - PUBLISHED_MS[model]) <= 3


def test_it_tells_how_it_is_getting_on(demo: subprocess.CompletedProcess[str]) -> None:
    """While it runs it says on stderr what it does and how many samples there are."""
    assert "samples stored" in demo.stderr
    assert "Traceback" not in demo.stderr


def test_the_readme_shows_what_it_prints(demo: subprocess.CompletedProcess[str]) -> None:
    """Every heading line of the demo's output in the README is a line of the real output."""
    shown = (ROOT / "README.md").read_text().split("```text")[1].split("```")[0]
    headings = [
        line for line in shown.splitlines() if line.startswith(("model ", "target ", "ap-southeast-1", "the published"))
    ]
    assert len(headings) >= 3

    def squeezed(text: str) -> set[str]:
        return {" ".join(line.split()) for line in text.splitlines()}

    assert {" ".join(line.split()) for line in headings} <= squeezed(demo.stdout)


def test_nothing_remains_running(demo: subprocess.CompletedProcess[str]) -> None:
    """No process of the demo outlives it."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if "demo0/place" in line] == []
