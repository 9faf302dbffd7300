"""Leaderboards: ranked within a region, and honest about targets that did not answer."""

from isochrone_collector.leaderboard import Entry, standings


def entry(target: str, region: str = "us", **more: object) -> Entry:
    return Entry(region=region, target=target, provider="sim", model=target, **more)  # type: ignore[arg-type]  # a test's shorthand


def test_ranks_count_within_each_region() -> None:
    """Each region has its own order, from the smallest median up."""
    lines = standings(
        [
            entry("slow", ttft_us=[900.0]),
            entry("fast", ttft_us=[100.0]),
            entry("slow", "sg", ttft_us=[10.0]),
            entry("fast", "sg", ttft_us=[20.0]),
        ]
    )
    assert [(line.region, line.rank, line.target) for line in lines] == [
        ("sg", 1, "slow"),
        ("sg", 2, "fast"),
        ("us", 1, "fast"),
        ("us", 2, "slow"),
    ]


def test_a_target_that_never_answered_comes_last() -> None:
    """Without a first token there is no time to rank by, and no number is made up."""
    lines = standings([entry("dead", censored_us=[60.0], failed=4), entry("alive", ttft_us=[1e9])])
    assert [line.target for line in lines] == ["alive", "dead"]
    assert (lines[1].n, lines[1].failed, lines[1].ttft_p50_us) == (0, 4, None)


def test_timeouts_raise_the_tail() -> None:
    """Probes that timed out count above all others in the quantiles, and not in n."""
    [line] = standings([entry("a", ttft_us=[100.0] * 9, censored_us=[5_000.0], failed=1)])
    assert line.n == 9
    assert line.ttft_p50_us is not None
    assert line.ttft_p95_us is not None
    assert (line.ttft_p50_us.value, line.ttft_p95_us.value) == (100.0, 5_000.0)


def test_small_samples_show_no_bounds() -> None:
    """Five probes have a median and no interval; sixty have one for p95 too."""
    [few] = standings([entry("a", ttft_us=[1.0, 2.0, 3.0, 4.0, 5.0], tokens_per_second=[50.0])])
    [many] = standings([entry("a", ttft_us=list(map(float, range(60))))])
    assert few.ttft_p50_us is not None
    assert (few.ttft_p50_us.value, few.ttft_p50_us.low) == (3.0, None)
    assert few.tokens_per_second_p50 is not None
    assert few.tokens_per_second_p50.value == 50.0
    assert many.ttft_p95_us is not None
    assert many.ttft_p95_us.high is not None
