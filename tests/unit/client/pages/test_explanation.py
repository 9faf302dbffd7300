"""The explanation of a differential: each sentence follows from the numbers."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.fake_collector import DIFFERENTIALS, NOW_AT, STEPPED, WINDOW
from isochrone_client.formats import UNKNOWN
from isochrone_client.pages import explanation as stories
from isochrone_client.pages.differentials import ADDENDS
from isochrone_client.pages.explanation import explanation, handshake_share, rounds_needed
from isochrone_wire.answers import Decision, Differential, DifferentialList, Metric, Part, Side
from isochrone_wire.model import DAY_US, SECOND_US

SLOWER, FASTER, UNDECIDED = DIFFERENTIALS
EARLY = replace(SLOWER, shift_low=None, shift_high=None, decision=Decision.UNDECIDED)
PARTS = {part.name: part for part in SLOWER.parts}


def sentences(row: Differential) -> dict[str, str]:
    return {paragraph.topic: paragraph.text for paragraph in explanation(row, now_at=NOW_AT)}


@pytest.mark.parametrize(
    ("row", "topic", "sentence"),
    [
        (SLOWER, "difference", "is 191 ms (59.7 %) longer from ap-southeast-1 than from us-east-2."),
        (SLOWER, "difference", "pseudomedian of the rounds' differences; its 95 % interval is 180 to 204 ms longer."),
        (SLOWER, "difference", "The medians are 513 ms and 320 ms: 192 ms longer."),
        (
            SLOWER,
            "decision",
            "by 191 ms (180 to 204 ms): the interval excludes zero, and the difference is at least the",
        ),
        (SLOWER, "confidence", "Both sides have a value in 1436 rounds"),
        (SLOWER, "confidence", "1436 rounds ≈ 412 independent"),
        (SLOWER, "confidence", "have a correlation of 0.62, which pairing removes."),
        (FASTER, "confidence", "have a negative correlation of 0.08, so pairing removes little."),
        (replace(SLOWER, decision=Decision.MIXED, reason="the reason"), "decision", "It is mixed: the reason."),
        (replace(SLOWER, median_difference=None), "difference", "The medians are 513 ms and 320 ms."),
        (replace(SLOWER, median_difference=0.0), "difference", "The medians are 513 ms and 320 ms, the same."),
        (SLOWER, "confidence", "with a probability of 1.2 %"),
        (SLOWER, "confidence", "at least as clear as this one, less than 0.01 % are expected to be chance"),
        (SLOWER, "origin", "(ttft_cold) takes 547 ms more in total"),
        (SLOWER, "origin", "TLS handshake 178 ms more (178 to 179 ms more)"),
        (SLOWER, "origin", "98 % network, 2 % server"),
        (SLOWER, "origin", "everything behind the address that was dialled"),
        (FASTER, "origin", "everything behind the address that was dialled"),
        (
            SLOWER,
            "provider",
            "network takes 534 ms more, the way behind the edge 4.3 ms more (1.2 to 7.4 ms more), and the",
        ),
        (SLOWER, "handshakes", "42.9 % of ttft_cold from ap-southeast-1 and 7.9 % from us-east-2"),
        (SLOWER, "provider", "The provider reports that it takes 9 ms more (1 to 17 ms more), in 1402 rounds."),
        (SLOWER, "us-east-2", "Of 1449 probes, 0.63 % failed (95 % interval 0.33 … 1.2 %)."),
        (SLOWER, "ap-southeast-1", "99.8 % of the planned rounds have a sample."),
        (SLOWER, "freshness", "The newest round is 42 s old."),
        (FASTER, "difference", "is 30 ms (16.7 %) shorter from ap-southeast-1"),
        (FASTER, "difference", "its 95 % interval is 25 to 35 ms shorter."),
        (replace(FASTER, shift_high=4_000.0), "difference", "its 95 % interval is 35 ms shorter to 4 ms longer."),
        (FASTER, "origin", "The network takes 1.9 ms more, the server 32 ms less: one takes more, the other less"),
        (replace(FASTER, q_value=0.012), "confidence", "at most 1.2 % are expected to be chance"),
        (SLOWER, "handshakes", "They take 356 ms more from ap-southeast-1; an open connection avoids them."),
        (UNDECIDED, "difference", "is unknown."),
        (EARLY, "difference", "is 191 ms (59.7 %) longer from ap-southeast-1 than from us-east-2. This is the"),
        (EARLY, "difference", "it has no 95 % interval yet, so its direction is not known."),
        (replace(FASTER, shift=0.0), "difference", "flash is the same from ap-southeast-1 as from us-east-2."),
        (UNDECIDED, "decision", "It is undecided: 3 of 24 rounds needed."),
        (UNDECIDED, "next steps", "A decision needs 21 more rounds with a value on both sides"),
        (replace(FASTER, decision=Decision.EQUIVALENT), "decision", "is smaller than the smallest that matters, 20 ms"),
        (replace(FASTER, paired=False, n=0), "confidence", "1431 rounds of ap-southeast-1 are compared with 1440 of"),
        (replace(FASTER, since_at=NOW_AT - DAY_US), "freshness", "changed at 2026-11-20 08:00 UTC"),
        (replace(FASTER, faster_probability=1.0), "confidence", "ap-southeast-1 was better in every round."),
        (replace(FASTER, network_shift=100.0), "origin", "all of it comes from the server."),
        (replace(SLOWER, parts=(PARTS["dns"], PARTS["server"])), "origin", "do not have the phases tcp, tls, rtt."),
        (replace(SLOWER, parts=(PARTS["rtt"], PARTS["server"])), "origin", "A first token (ttft) takes 191 ms more"),
        (replace(SLOWER, parts=(PARTS["server"],)), "provider", "does not report its own processing time"),
        (replace(UNDECIDED, region_n=0), "next steps", "no values from ap-southeast-1: see `isochrone vantages`"),
        (
            replace(UNDECIDED, region_side=Side(coverage=0.4)),
            "next steps",
            "`isochrone coverage --region ap-southeast-1`",
        ),
        (
            replace(UNDECIDED, region_side=SLOWER.region_side),
            "next steps",
            "`isochrone samples --region ap-southeast-1`",
        ),
    ],
)
def test_sentences(row: Differential, topic: str, sentence: str) -> None:
    """Each number of the differential appears under its topic, in words that match its sign and unit."""
    assert sentence in sentences(row)[topic]


def test_a_step_is_named_first() -> None:
    """A change within the window has levels, intervals, the side that changed, and a decision on the present level."""
    text = sentences(STEPPED)
    assert text["step"] == (
        "+400 ms since 07:58:48: the difference is +435 ms in 12 rounds, and was +35 ms in 19 rounds before. "
        "All other figures are those of the rounds since then. "
        "The 95 % interval since then is 434 to 437 ms longer. The 95 % interval before is 34 to 36 ms longer. "
        "The median of ap-southeast-1 went from 235 ms to 635 ms, that of us-east-2 from 200 ms to 200 ms."
    )
    assert text["decision"].startswith("The decision is about the rounds since 07:58:48. ap-southeast-1 is slower by")


def test_every_earlier_level_is_named() -> None:
    """After an incident the present level, the incident and the level before it are named, the newest first."""
    calm = replace(STEPPED.levels[0], from_at=NOW_AT - 20 * SECOND_US, until_at=NOW_AT)
    text = sentences(replace(STEPPED, levels=(*STEPPED.levels, calm), since_at=calm.from_at))["step"]
    assert text.startswith(
        "-400 ms since 07:59:40: the difference is +35 ms in 19 rounds, and was +435 ms in 12 rounds"
    )
    assert text.endswith("Earlier, until 07:58:44, the difference was +35 ms in 19 rounds.")


def test_a_change_of_both_sides_is_no_step() -> None:
    """Levels that differ by less than the margin come from a change that both sides share, and are not named."""
    first, last = STEPPED.levels
    shared = replace(STEPPED, levels=(replace(first, shift=last.shift - 19_000.0), last))
    assert "step" not in sentences(shared)


@pytest.mark.parametrize(
    ("row", "topic"),
    [
        (FASTER, "handshakes"),
        (replace(SLOWER, parts=(PARTS["rtt"], PARTS["server"])), "handshakes"),
        (FASTER, "provider"),
        (SLOWER, "next steps"),
        (replace(UNDECIDED, newest_at=None), "freshness"),
        (replace(FASTER, network_shift=None), "origin"),
    ],
)
def test_nothing_is_made_up(row: Differential, topic: str) -> None:
    """A topic without data has no sentence."""
    assert topic not in sentences(row)


@given(
    st.floats(min_value=-1e6, max_value=1e6),
    st.floats(min_value=0, max_value=1e6),
    st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=5, max_size=5),
)
def test_no_sentence_has_a_signed_number(shift: float, half: float, parts: list[float]) -> None:
    """Whatever the numbers, words state their direction; no sentence has a plus or a minus sign."""
    row = replace(
        FASTER,
        shift=shift,
        shift_low=shift - half,
        shift_high=shift + half,
        shift_percent=shift,
        parts=tuple(
            Part(name=name, shift=value, low=value - half, high=value + half)
            for name, value in zip(ADDENDS, parts, strict=True)
        ),
    )
    for text in sentences(row).values():
        assert not re.search(r"(?<![\w.-])[-+−]\d", text), text  # noqa: RUF001  # a minus sign, too


def test_a_rate_is_higher_or_lower() -> None:
    """Speeds are in tokens per second, and a larger one is `higher`."""
    row = replace(FASTER, metric=Metric.TOKENS_PER_SECOND, unit="tokens/s", shift=12.5, shift_low=11.0, shift_high=14.0)
    assert "speed of deepseek/deepseek-v4-flash is 12 tokens/s (16.7 %) higher from" in sentences(row)["difference"]
    assert "11 to 14 tokens/s higher" in sentences(row)["difference"]


@given(st.lists(st.floats(min_value=0, max_value=1e7), min_size=5, max_size=5))
def test_handshakes_are_a_share(medians: list[float]) -> None:
    """The share lies between 0 and 1, and is unknown for a side without a server part."""
    parts = tuple(
        Part(name=name, shift=0.0, baseline_median=value) for name, value in zip(ADDENDS, medians, strict=True)
    )
    share = handshake_share(replace(FASTER, parts=parts), lambda part: part.baseline_median)
    assert share is None if not sum(medians) else share is not None and 0 <= share <= 1 + 1e-9
    assert handshake_share(replace(FASTER, parts=parts[:-1]), lambda part: part.baseline_median) is None


@pytest.mark.parametrize(
    ("shift", "half", "needed"),
    [
        (40.0, 60.0, range(220, 260)),  # excludes zero beyond the margin: half the width needs four times the rounds
        (5.0, 30.0, range(400, 480)),  # within the margin
        (20.0, 1e9, None),
        (0.0, 19.0, range(101, 120)),
    ],
)
def test_rounds_that_would_decide(shift: float, half: float, needed: range | None) -> None:
    """An interval narrows with the square root of the rounds; there is no estimate for unreachable numbers."""
    row = replace(UNDECIDED, n=100, margin=20.0, shift=shift, shift_low=shift - half, shift_high=shift + half)
    found = rounds_needed(row)
    assert found is None if needed is None else found in needed


def test_every_pair_is_explained() -> None:
    """Each differential has its explanation; programs get it in the row, next to all fields."""
    answer = DifferentialList(window=WINDOW, differentials=DIFFERENTIALS)
    headings = [table.heading for table in stories.explanation_page(answer, now_at=NOW_AT).tables()]
    assert headings == [f"{row.target}: ttft from ap-southeast-1 against us-east-2" for row in DIFFERENTIALS]
    page = stories.records_page(answer, metric=Metric.TTFT, now_at=NOW_AT)
    record = page.record(SLOWER)
    assert record["parts"][0]["name"] == "dns"
    assert record["story"][0].startswith(
        "difference: The time to first token of openai/gpt-5-mini is 191 ms (59.7 %) longer"
    )


def test_the_phases_have_a_table() -> None:
    """Each phase has a line with both medians; without an interval the cell is a dash."""
    unsure = replace(PARTS["rtt"], low=None)
    answer = DifferentialList(window=WINDOW, differentials=(replace(SLOWER, parts=(PARTS["tcp"], unsure)), FASTER))
    page = stories.phases_page(answer)
    [table] = page.tables()
    assert [list(cells) for cells in table.cells] == [
        ["tcp", "12", "189", "+177", "+177 … +178", "1402"],
        ["rtt", "12", "190", "+178", UNKNOWN, "1402"],
    ]
