"""The reference pages of the documentation are complete."""

import re
from pathlib import Path

import click
import pytest

from isochrone_collector.store.job_state import Channel
from isochrone_common.dialects import providers
from isochrone_wire.plan_document import document
from tools import docs_reference
from tools.docs_reference import PARTS, PROGRAMS

ROOT = Path(__file__).parents[3]
PACKAGES = tuple(
    f"isochrone_{name}" for name in ("agent", "client", "collector", "common", "migrations", "sim", "wire")
)


@pytest.mark.parametrize("part", PARTS)
def test_each_key_of_a_plan_is_explained(part: str) -> None:
    """Each field of the schema has a docstring, which the reference shows."""
    shape = PARTS[part]
    assert set(docs_reference.meanings(shape)) >= set(shape.model_fields)


def test_each_metric_is_in_the_reference() -> None:
    """The reference has each metric that a page, an alert rule or the code names."""
    metrics = {one.name for room in docs_reference.METRIC_ROOMS for one in docs_reference.metrics(room)}
    for path in (ROOT / "docs").glob("*.md"):
        named = re.findall(r"`(isochrone_[a-z0-9_]+?)(?:_bucket)?(?:\{[^`]*)?`", path.read_text())
        assert {name for name in named if not name.startswith(PACKAGES)} <= metrics, path
    rules = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text()
    used = {re.sub("_(bucket|count|sum)$", "", name) for name in re.findall(r"\bisochrone_[a-z0-9_]+", rules)}
    assert used
    assert used <= metrics
    code = "".join(path.read_text() for room in docs_reference.METRIC_ROOMS for path in (ROOT / room).rglob("*.py"))
    created = set(re.findall(r'"(isochrone_[a-z0-9_]+)"', code)) - {*PACKAGES, *Channel}
    assert created <= {re.sub("_(total|info)$", "", name) for name in metrics}


def test_the_list_for_assistants_is_complete() -> None:
    """llms.txt names every page of docs/ and of the root."""
    named = set(re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text()))
    assert named == {
        path.relative_to(ROOT).as_posix() for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md")
    }


def test_values_and_defaults_come_from_the_schema() -> None:
    """Durations have units, numbers their bounds, names their choices, and defaults are written as in a document."""
    page = docs_reference.configuration_page()
    for line in (
        r"\| `every` \| Interval [^|]*\| a duration, 200ms to 7d \| `1m` \|",
        r"\| `overlap` \| [^|]*\| `skip` or `allow` \| `skip` \|",
        r"\| `baseline` \| [^|]*\| a text, at most 200 characters \| required \|",
        r"\| `temperature` \| [^|]*\| a number, from 0 to 2 \|  \|",
        r"\| `class` \| [^|]*\| `voice` or `code` [^|]*\| `custom` \|",
        r"\| `concurrency` \| [^|]*\| a whole number, from 1 to 1.000 \| `1` \|",
    ):
        assert re.search(line, page), line


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_command_has_its_help(program: str) -> None:
    """The page of a program has a section for it and for each of its commands, with usage and example."""
    page = docs_reference.cli_page(program)
    for context in docs_reference.commands(program):
        section = page.partition(f"## {context.command_path}\n")[2].partition("\n## ")[0]
        assert f"Usage: {context.command_path} " in section
        assert "-h, --help" in section
        assert isinstance(context.command, click.Group) or "Example:" in section


def test_each_variable_is_listed() -> None:
    """Each environment variable that an option reads is in the table, once per meaning of its default."""
    variables = [row[0].strip("`") for row in docs_reference.environment()]
    assert {"ISOCHRONE_COLLECTOR", "ISOCHRONE_VANTAGE", "ISOCHRONE_LISTEN", "ISOCHRONE_SIM_API_KEY"} <= {*variables}
    assert variables == sorted(variables)


def test_the_plan_of_the_quickstart_is_valid() -> None:
    """The plan that a newcomer copies is accepted, and its key is one that the catalogue sends to that address."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    [plan] = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    reading = document.load(plan, version=1)
    assert reading.problems == ()
    assert reading.plan is not None
    [target] = reading.plan.targets
    provider = providers.CATALOGUE[target.credential or ""]
    assert target.base_url == provider.base_url
    assert f"export {provider.key_env}=" in page
