"""The matrix of targets and regions: its cells, and the table that they make."""

from dataclasses import replace

import pytest

from isochrone_client.formats import UNKNOWN
from isochrone_client.pages.matrix import FORMS, FORMS_WITH_BARS, Cell, Matrix, fitting_page, matrix_of, note_of
from isochrone_client.render import renderer
from isochrone_client.render.page import RenderOptions
from isochrone_wire.answers import Decision, Differential, Metric, Quantile
from isochrone_wire.insights import Standing
from testdata.client_answers import BASELINE, OTHER, REGION, cell, difference
from testdata.insights import NOW_AT

TARGETS = ("acme/large", "acme/small")
KINDS = (Decision.FASTER, Decision.UNDECIDED, Decision.EQUIVALENT)


def standing(region: str, ttft_ms: float) -> Standing:
    return Standing(
        region=region,
        rank=1,
        target=TARGETS[0],
        provider="acme",
        model="large",
        n=30,
        failed=0,
        ttft_p50_us=Quantile(value=1000 * ttft_ms, low=900 * ttft_ms, high=1100 * ttft_ms),
    )


def found(*rows: Differential, standings: tuple[Standing, ...] = ()) -> Matrix:
    return matrix_of(standings, rows, metric=Metric.TTFT, baseline=BASELINE, regions=(REGION, OTHER), targets=TARGETS)


def lines(matrix: Matrix, width: int, forms: tuple[object, ...] = FORMS) -> list[str]:
    page = fitting_page(matrix, "title", width=width, forms=forms)  # type: ignore[arg-type]
    return renderer("table").whole(page, RenderOptions(width=width)).splitlines()[2:]


def test_every_place_has_a_cell() -> None:
    """Before the first sample each target has an empty cell in each region."""
    empty = found()
    assert len(empty.cells) == 6
    assert (empty.has_every_value, empty.is_firm, empty.changed) == (False, False, ())
    rows = lines(empty, 80)
    assert " ".join(rows[2].split()) == f"acme/large {UNKNOWN} {UNKNOWN} warming up 0/6 {UNKNOWN} warming up 0/6"


def test_a_cell_combines_both_answers() -> None:
    """A cell combines median and difference, since a step those after it, and of pairs where rounds are too few."""
    shown = found(difference(-30), standings=(standing(REGION, 170),)).cell(TARGETS[0], REGION)
    assert (shown.value, shown.firm) == (170_000, difference(-30))
    step = difference(-30, since_at=NOW_AT, region_median=150_000, baseline_median=180_000)
    assert found(step, standings=(standing(REGION, 170),)).cell(TARGETS[0], REGION).value == 150_000
    paired = found(difference(-30, region_median=140_000, baseline_median=170_000))
    cells = [paired.cell(TARGETS[0], region) for region in (BASELINE, REGION)]
    assert [(cell.value, cell.is_early) for cell in cells] == [(170_000, False), (140_000, False)]


def test_a_cell_warms_up_with_the_rounds_of_both_regions() -> None:
    """Without a difference the rounds are those of the region with fewer; one that just changed is not warming up."""
    assert found(standings=(standing(REGION, 170),)).cell(TARGETS[0], REGION).rounds == 0, "the baseline has no round"
    warming = found(difference(None, n=4)).cell(TARGETS[0], REGION)
    assert (warming.rounds, warming.firm) == (4, None)
    early = replace(difference(-30, n=4), shift_low=None, decision=Decision.UNDECIDED)
    assert " -30? 4/6 " in f"{lines(found(early), 80)[2]} "
    changing = found(difference(None, n=5, since_at=NOW_AT, region_median=500_000))
    assert " 500? changing 5/6 " in lines(changing, 80)[2]


def fifteen(*, network_us: float | None = None) -> Matrix:
    targets = tuple(f"provider-{place}/model-{place:02}" for place in range(15))
    cells: dict[tuple[str, str], Cell] = {}
    for place, target in enumerate(targets):
        value = 100.0 + 85 * place
        cells[target, BASELINE] = Cell(value=1000 * value)
        for region, shift in ((REGION, -20.4), (OTHER, 35.4)):
            changed = 400_000.0 if (place, region) == (2, OTHER) else None
            now = shift + (400 if changed else 0)
            row = difference(now, 2.3, 4.1, decision=KINDS[place % 4 - 3], network_shift=network_us)
            if place % 4 == 3:
                row = difference(None, n=4)
            cells[target, region] = cell(value + now, row, changed=changed)
    return Matrix(metric=Metric.TTFT, baseline=BASELINE, regions=(REGION, OTHER), targets=targets, cells=cells)


def test_columns_are_aligned() -> None:
    """At the usual width a table reads as follows: what is certain with its error, what is not with its rounds."""
    assert lines(fifteen(), 80)[:6] == [
        "target    us-east-2  ap-southeast-1           eu-central-1",
        "               ttft  ttft  difference         ttft  difference",
        "model-00        100    80    -20 ±5   faster   135    +35 ±5   faster",
        "model-01        185   165    -20 ±5   ?        220    +35 ±5   ?",
        "model-02        270   250    -20 ±5   equal    705▲  +435 ±5   equal",
        "model-03        355   335  warming up 4/6      390  warming up 4/6",
    ]


def test_a_wide_table_has_providers_and_whole_words() -> None:
    """With more room a table has each target with its provider, decisions in full and, if there is any, the network."""
    _, _, first, second, *_ = lines(fifteen(network_us=61_000.0), 140)
    assert " ".join(first.split()) == "provider-0/model-00 100 80 -20 ±5 faster +61 135 +35 ±5 faster +61"
    assert "undecided" in second
    assert "network" not in "".join(lines(fifteen(network_us=900.0), 140))


@pytest.mark.parametrize("width", [60, 70, 80, 100, 140, 200])
@pytest.mark.parametrize("forms", [FORMS, FORMS_WITH_BARS])
def test_the_table_fits(width: int, forms: tuple[object, ...]) -> None:
    """No line is wider than the terminal, and the place that changed is marked in its row only."""
    shown = lines(fifteen(network_us=61_000.0), width, forms)
    assert max(map(len, shown)) <= width
    assert [line.split()[0].rpartition("/")[2] for line in shown if "▲" in line] == ["model-02"]


def row(of: Cell, *, width: int = 60, metric: Metric = Metric.TTFT) -> str:
    cells = {("acme/m", "home"): Cell(value=2e5, bars="▃" * 8), ("acme/m", "away"): of}
    matrix = Matrix(metric=metric, baseline="home", regions=("away",), targets=("acme/m",), cells=cells)
    page = fitting_page(matrix, "", width=width, forms=FORMS_WITH_BARS)
    [line] = page.rows
    return "  ".join(str(column.text(line)) for column in page.columns)


def firm(decision: Decision, **more: object) -> Cell:
    return cell(235, difference(35, decision=decision), bars="▃▄▅", **more)


@pytest.mark.parametrize(
    ("of", "mark"),
    [
        (firm(Decision.SLOWER), " "),
        (firm(Decision.EQUIVALENT), "="),
        (firm(Decision.MIXED), "~"),
        (firm(Decision.UNDECIDED), "?"),
        (Cell(value=2.35e5, is_early=True), "?"),
        (Cell(value=2.35e5, is_early=True, is_stale=True), "○"),
        (firm(Decision.UNDECIDED, is_stale=True), "○"),
        (firm(Decision.UNDECIDED, is_stale=True, changed=1.0), "▲"),
        (firm(Decision.UNDECIDED, is_stale=True, changed=1.0, is_failing=True), "✗"),
    ],
)
def test_without_words_a_mark_has_the_decision(of: Cell, mark: str) -> None:
    """Where there is no room for words, a mark replaces them, and the gravest one is shown."""
    assert f" 235{mark} " in row(of, width=46)
    assert "slower" not in row(of, width=46)


def test_bars_end_at_the_right() -> None:
    """Bars end at the right with the newest; a speed has a decimal, and its error is rounded up."""
    assert row(firm(Decision.SLOWER), width=46).endswith("   ▃▄▅")
    assert "▃▃▃▃▃▃ " in row(firm(Decision.SLOWER), width=46)
    assert "▃▃▃▃▃▃▃" not in row(firm(Decision.SLOWER), width=46)
    speed = Cell(value=60.25, difference=replace(difference(0), shift=-3.04, shift_low=-3.61, shift_high=-2.5))
    assert row(speed, width=140, metric=Metric.TOKENS_PER_SECOND).split()[-4:] == ["60.2", "-3.0", "±0.6", "slower"]


def test_a_note_is_the_difference_in_a_few_words() -> None:
    """A difference is a number, with the instant of a step, and a question mark until it is decided."""
    cases = {
        "+35": difference(35),
        "-35 since 07:59:00": difference(-35, since_at=NOW_AT - 60_000_000, decision=Decision.FASTER),
        "same": difference(1, decision=Decision.EQUIVALENT),
        "mixed": difference(35, decision=Decision.MIXED),
        "+35?": difference(35, decision=Decision.UNDECIDED),
        "undecided": difference(None),
    }
    for text, of in cases.items():
        assert note_of(cell(400, of), found(), now_at=NOW_AT) == text
    assert note_of(Cell(), found(), now_at=NOW_AT) == ""
