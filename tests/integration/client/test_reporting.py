"""`isochrone report` against a real socket: what it asks, where it writes, and what it leaves out."""

from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from fix_observatory import FakeObservatory
from isochrone_client.cli import cli


def run(observatory: FakeObservatory, *arguments: str) -> Result:
    """What `isochrone report` does in this process."""
    return CliRunner().invoke(cli, ["report", *arguments], env={"ISOCHRONE_COLLECTOR": observatory.address})


def test_it_writes_a_page_and_markdown(observatory: FakeObservatory, tmp_path: Path) -> None:
    """Both formats may be written at once, to files that are named on stderr; stdout stays for answers."""
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    result = run(observatory, "--html", str(page), "--markdown", str(text), "--window", "7d")
    assert (result.exit_code, result.stdout) == (0, "")
    assert str(page) in result.stderr
    assert page.read_text().startswith("<!DOCTYPE html>")
    for title in (
        "Differentials",
        "Leaderboards",
        "Best regions",
        "Latency targets",
        "Price tiers",
        "Drift",
        "Coverage",
    ):
        assert f"## {title}" in text.read_text()
        assert f">{title}</h2>" in page.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md"}


@pytest.mark.parametrize("arguments", [(), ("--markdown",), ("--markdown", "-"), ("--markdown", "--window", "7d")])
def test_markdown_is_what_a_pipe_gets(observatory: FakeObservatory, arguments: tuple[str, ...]) -> None:
    """Without a file, and without --html, the report is Markdown on stdout."""
    result = run(observatory, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("# LLM latency by region")


def test_what_fails_is_left_out_with_the_reason(observatory: FakeObservatory) -> None:
    """A question that the collector fails on costs its sections, not the report."""
    observatory.failures = {
        "GetTiersRequest": (grpc.StatusCode.INTERNAL, "out of order"),
        "GetDifferentialsRequest": (grpc.StatusCode.UNIMPLEMENTED, "not yet"),
    }
    result = run(observatory)
    assert result.exit_code == 0
    assert result.stdout.count("Left out: the collector at") == 3
    assert "out of order" in result.stdout
    assert "## Leaderboards" in result.stdout


def test_what_is_not_known_is_no_report(observatory: FakeObservatory, tmp_path: Path) -> None:
    """An unknown target is the reader's mistake: exit code 2, and an older file stays as it was."""
    page = tmp_path / "report.html"
    page.write_text("older")
    result = run(observatory, "--html", str(page), "--target", "nobody/*")
    assert result.exit_code == 2
    assert page.read_text() == "older"


def test_nobody_there_is_three(tmp_path: Path) -> None:
    """Without a collector there is no report at all."""
    page = tmp_path / "report.html"
    result = CliRunner().invoke(cli, ["report", "--html", str(page), "--collector", "127.0.0.1:1"])
    assert result.exit_code == 3
    assert not page.exists()


def test_a_report_of_nothing_is_written_and_is_four(observatory: FakeObservatory, tmp_path: Path) -> None:
    """Where nothing was measured the page says so section by section, and the exit code tells a script."""
    observatory.differentials = observatory.standings = observatory.region_costs = ()
    observatory.latency_budgets = observatory.tiers = ()
    observatory.drift = type(observatory.drift)(window=observatory.drift.window)
    page = tmp_path / "report.html"
    result = run(observatory, "--html", str(page))
    assert result.exit_code == 4
    assert "no samples between" in result.stderr
    assert page.read_text().count("Nothing in this window.") >= 5
    assert "No lasting change in this window; 0 series watched." in page.read_text()


def test_a_folder_that_is_not_there_is_a_sentence(observatory: FakeObservatory, tmp_path: Path) -> None:
    """Where the file cannot be written there is a sentence and a hint, no traceback."""
    result = run(observatory, "--html", str(tmp_path / "nowhere" / "report.html"))
    assert result.exit_code == 1
    assert "nowhere" in result.stderr
    assert len(result.stderr.splitlines()) == 2
