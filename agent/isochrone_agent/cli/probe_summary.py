"""Markdown of `probe`, for a page of results: the limits, the medians, and a row per run. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from isochrone_agent.cli import probe_output
from isochrone_agent.cli.probe_limits import Verdict
from isochrone_wire.model import Sample
from isochrone_wire.text import escaped_markdown


def markdown(title: str, batches: Sequence[Sequence[Sample]], verdicts: Sequence[Verdict]) -> str:
    """The Markdown text; `batches` are the samples of each run. Texts from elsewhere are escaped."""
    samples = [sample for batch in batches for sample in batch]
    rows = [probe_output.cells(number, sample) for number, batch in enumerate(batches, 1) for sample in batch]
    blocks = [
        f"### {escaped_markdown(title)}",
        *_list(probe_output.verdict_sentence(verdict) for verdict in verdicts),
        "\n".join(map(_line, [probe_output.HEADINGS, ["---:"] * len(probe_output.HEADINGS), *rows])),
        *_list((*probe_output.summary(samples), probe_output.LEGEND)),
    ]
    return "\n\n".join(blocks) + "\n\n"


def _list(sentences: Iterable[str]) -> Iterator[str]:
    items = [f"- {escaped_markdown(sentence)}" for sentence in sentences]
    if items:
        yield "\n".join(items)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped_markdown, cells))} |"
