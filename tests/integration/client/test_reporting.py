"""`isochrone report` against a real socket: its requests, files and missing sections."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from fixtures.fake_collector import TARGETS, FakeCollector
from testdata import reading


def run(observatory: FakeCollector, *arguments: str) -> Result:
    return reading.run(observatory, "report", *arguments)


def test_it_writes_a_page_and_markdown(observatory: FakeCollector, tmp_path: Path) -> None:
    """The ending of the file's name chooses the format; the file is named on stderr, and stdout stays empty."""
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    for file in (page, text):
        result = run(observatory, "--file", str(file), "--window", "7d")
        assert (result.exit_code, result.stdout) == (0, "")
        assert str(file) in result.stderr
    assert page.read_text().startswith("<!doctype html>")
    for title in (
        "Targets by region",
        "Time to first token over time",
        "Incidents",
        "Differentials",
        "Best regions",
        "Latency targets",
        "Price tiers",
        "Coverage",
    ):
        assert f"## {title}" in text.read_text()
        assert f">{title}</h2>" in page.read_text() or title == "Targets by region"
    assert '<table class="matrix">' in page.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md"}


@pytest.mark.parametrize("arguments", [(), ("--output", "markdown"), ("--file", "-", "--window", "7d")])
def test_markdown_goes_to_stdout(observatory: FakeCollector, arguments: tuple[str, ...]) -> None:
    """Without a file, the report is Markdown on stdout."""
    result = run(observatory, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("# LLM latency by region")


def test_what_fails_is_left_out_with_the_reason(observatory: FakeCollector) -> None:
    """A failed request leaves out its sections, not the whole report."""
    observatory.failures = {"/v1/tiers": ("internal", "out of order"), "/v1/diff": ("about:blank", "not yet")}
    result = run(observatory)
    assert result.exit_code == 0
    assert result.stdout.count("Left out: the collector at") == 3
    assert "out of order" in result.stdout
    assert re.search(r"\| deepseek/deepseek-v4-flash \| +180 \|", result.stdout)


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [(("--target", "nobody/*"), 2), (("--collector", "127.0.0.1:1"), 3), (("--file", "/nowhere/report.html"), 1)],
)
def test_without_a_report_a_file_stays(
    observatory: FakeCollector, tmp_path: Path, words: tuple[str, ...], exit_code: int
) -> None:
    """An unknown target, no collector, and a folder that is missing are a sentence and a hint; no file is changed."""
    page = tmp_path / "report.html"
    page.write_text("older")
    result = run(observatory, "--file", str(page), *words)
    assert (result.exit_code, len(result.stderr.splitlines()), page.read_text()) == (exit_code, 2, "older")


def test_a_report_of_nothing_is_written_and_is_four(observatory: FakeCollector, tmp_path: Path) -> None:
    """Without measurements each section of the page is empty, and the exit code is 4 on request."""
    observatory.differentials = observatory.standings = observatory.region_costs = ()
    observatory.latency_budgets = observatory.tiers = observatory.coverage = ()
    observatory.drift = type(observatory.drift)(window=observatory.drift.window)
    observatory.series = replace(observatory.series, series=())
    observatory.alerts = replace(observatory.alerts, alerts=())
    page = tmp_path / "report.html"
    assert run(observatory, "--file", str(page)).exit_code == 0
    result = run(observatory, "--file", str(page), "--exit-code")
    assert result.exit_code == 4
    assert "no samples between" in result.stderr
    assert page.read_text().count("Nothing in this window.") >= 5
    assert "No lasting change in this window; 0 series watched." in page.read_text()
    assert "LLM latency by region: no samples between" in page.read_text()
    assert "No samples between" in page.read_text()


def test_route_tables_are_included(routing: FakeCollector) -> None:
    """The tables in force are a section, as `isochrone routes` shows them."""
    result = run(routing)
    assert result.exit_code == 0, result.output
    section = result.stdout.partition("## Route tables")[2].partition("## Best regions")[0]
    table = routing.tables[0]
    assert f"### {table.route} from {table.client_region}" in section
    assert table.entries[0].target in section


def test_without_a_plan_the_report_says_so(observatory: FakeCollector) -> None:
    """An empty database is not an error: the verdict says what is missing."""
    observatory.targets = replace(TARGETS, plan_version=0, baseline="", targets=())
    observatory.vantages = replace(observatory.vantages, vantages=())
    observatory.coverage = observatory.differentials = observatory.standings = ()
    result = run(observatory)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "**No plan is applied: isochrone-collector apply plan.yaml.**" in result.stdout
    assert "**No agent has reported yet" in result.stdout


def test_the_series_is_asked_where_data_are(observatory: FakeCollector) -> None:
    """The series covers the rounds that have samples, in buckets of several rounds each."""
    (row, _) = observatory.coverage
    assert run(observatory, "--window", "30d").exit_code == 0
    (request,) = [one for one in observatory.requests if one.path == "/v1/series"]
    assert (request.window.from_at, request.window.until_at - 1) == (row.oldest_at, row.newest_at)
    assert request.one("points") == "120"
