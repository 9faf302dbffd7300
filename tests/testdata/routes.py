"""Route tables as returned by a collector: one of each kind that readers must distinguish."""

from dataclasses import replace

from isochrone_client.window import now_at
from isochrone_wire.answers import Proportion, Quantile, Window
from isochrone_wire.insights import Eligible
from isochrone_wire.model import SECOND_US, Slo
from isochrone_wire.routes import (
    Advantage,
    ChangeKind,
    Excluded,
    Explanation,
    Hedge,
    Hold,
    Provenance,
    RaceSet,
    RouteEntry,
    RouteEvent,
    RouteState,
    RouteTable,
)
from testdata.insights import NOW_AT, WINDOW

_FIRST = RouteEntry(
    rank=1,
    weight=0.75,
    target="deepseek/deepseek-v4-flash",
    provider="deepseek",
    model="deepseek-v4-flash",
    dialect="openai-chat",
    base_url="https://api.deepseek.example/v1",
    credential_ref="deepseek",
    ttft_p50_us=Quantile(value=182_300, low=179_100, high=186_900),
    ttft_p95_us=Quantile(value=241_000, low=229_500, high=266_200),
    tokens_per_second_p50=Quantile(value=61.2, low=60.4, high=62.0),
    rtt_p50_us=11_400.0,
    success=Proportion(value=0.9972, low=0.9842, high=0.9995, n=360),
    outcomes={"ok": 359, "failed": 1},
    n=359,
    n_eff=201.4,
    vantages=2,
    newest_at=NOW_AT - 12 * SECOND_US,
    usd_per_m_input=0.06,
    usd_per_m_output=0.25,
    slo_eligible=Eligible.YES,
    slo_in_window=Eligible.YES,
    cost=198.1,
    vs_best=Advantage(shift_us=0.0, low_us=0.0, high_us=0.0),
    hedge=Hedge(
        target="qwen/qwen3-32b",
        delay_us=241_000,
        expected_p99_without_us=1_104_000.0,
        expected_p99_with_us=512_000.0,
        stall_lift=1.2,
        joint_rounds=412,
    ),
    hold=Hold(state="active", since_at=NOW_AT - 7200 * SECOND_US, switches_24h=1),
    goodput=Proportion(value=0.9861, low=0.9679, high=0.9941, n=360),
)
_SECOND = replace(
    _FIRST,
    rank=2,
    weight=0.25,
    target="qwen/qwen3-32b",
    provider="qwen",
    model="qwen3-32b",
    base_url="https://dashscope.example/compatible-mode/v1",
    credential_ref="qwen",
    ttft_p50_us=Quantile(value=251_900, low=247_000, high=255_400),
    ttft_p95_us=Quantile(value=318_000, low=301_100, high=344_700),
    success=Proportion(value=1.0, low=0.9894, high=1.0, n=360),
    outcomes={"ok": 360},
    usd_per_m_output=0.28,
    slo_eligible=Eligible.MAYBE,
    slo_in_window=Eligible.MAYBE,
    cost=262.5,
    vs_best=Advantage(shift_us=69_700.0, low_us=66_200.0, high_us=73_900.0),
    goodput=Proportion(value=0.9583, low=0.9325, high=0.9745, n=360),
    hedge=None,
    hold=Hold(state="waiting", since_at=NOW_AT - 7200 * SECOND_US, switches_24h=1),
)
_THIRD = replace(
    _SECOND,
    rank=3,
    weight=0.0,
    target="groq/llama-3.3-70b-versatile",
    provider="groq",
    model="llama-3.3-70b-versatile",
    base_url="https://api.groq.example/openai/v1",
    credential_ref=None,
    ttft_p50_us=Quantile(value=412_000),
    ttft_p95_us=None,
    success=None,
    n=5,
    newest_at=None,
    usd_per_m_output=None,
    slo_eligible=Eligible.UNKNOWN,
    slo_in_window=Eligible.UNKNOWN,
    goodput=Proportion(value=0.8, low=0.3755, high=0.9638, n=5),
    vs_best=None,
)
CHAT = RouteTable(
    generation=48,
    etag="48-9f3ac1d2",
    client_region="us-east-2",
    route="chat",
    built_at=NOW_AT - 12 * SECOND_US,
    fresh_until_at=NOW_AT + 588 * SECOND_US,
    stale_until_at=NOW_AT + 1788 * SECOND_US,
    state=RouteState.OK,
    slo=Slo(name="chat", ttft_p95_us=330_000, min_success=0.98),
    window=Window(from_at=NOW_AT - 3612 * SECOND_US, until_at=NOW_AT - 12 * SECOND_US),
    provenance=Provenance(plan_version=3, code_version="0.2.0", inputs_sha256="5d41" * 16),
    change=ChangeKind.RAMP,
    sentence="weights move towards deepseek/deepseek-v4-flash",
    entries=(_FIRST, _SECOND, _THIRD),
    excluded=(Excluded(target="zhipu/glm-5", reason="2 of 6 samples needed"),),
    static_order=("deepseek/deepseek-v4-flash", "qwen/qwen3-32b"),
    race=RaceSet(targets=("deepseek/deepseek-v4-flash", "qwen/qwen3-32b"), expected_p95_us=221_000.0, usd_factor=2.1),
)
VOICE = replace(
    CHAT,
    generation=47,
    etag="47-00c1",
    route="voice",
    fresh_until_at=NOW_AT - 60 * SECOND_US,
    stale_until_at=NOW_AT + 1140 * SECOND_US,
    state=RouteState.DEGRADED,
    slo=Slo(name="voice", ttft_p95_us=120_000),
    change=ChangeKind.SOFT,
    sentence="qwen/qwen3-32b was better than deepseek/deepseek-v4-flash for 3 epochs, by 31 ms",
    entries=(
        replace(
            _SECOND,
            rank=1,
            weight=1.0,
            slo_eligible=Eligible.NO,
            slo_in_window=Eligible.NO,
            goodput=Proportion(value=0.0056, low=0.0015, high=0.0200, n=360),
            vs_best=Advantage(shift_us=0.0, low_us=0.0, high_us=0.0),
            hedge=Hedge(target="deepseek/deepseek-v4-flash", stall_lift=4.1, reason="the two stall together"),
        ),
    ),
    excluded=(),
    race=RaceSet(targets=("qwen/qwen3-32b",), reason="a second request would gain nothing"),
)
UNKNOWN_YET = replace(
    CHAT,
    generation=12,
    etag="12-aa",
    client_region="ap-southeast-1",
    state=RouteState.INSUFFICIENT_DATA,
    change=ChangeKind.FIRST,
    sentence="too little is known of every member: the static order holds",
    entries=(),
    excluded=(Excluded(target="deepseek/deepseek-v4-flash", reason="0 of 6 samples needed"),),
    race=None,
)
EXPIRED = replace(
    CHAT,
    generation=9,
    etag="9-bb",
    client_region="eu-central-1",
    fresh_until_at=NOW_AT - 1900 * SECOND_US,
    stale_until_at=NOW_AT - 700 * SECOND_US,
    entries=(replace(_FIRST, weight=1.0, hedge=None),),
    excluded=(),
    race=None,
    sentence="deepseek/deepseek-v4-flash is the first choice",
)
TABLES = (CHAT, VOICE, UNKNOWN_YET, EXPIRED)
EVENTS = (
    RouteEvent(
        generation=47,
        client_region="us-east-2",
        route="voice",
        at=NOW_AT - 61 * SECOND_US,
        change=ChangeKind.SOFT,
        sentence=VOICE.sentence,
        weights={"qwen/qwen3-32b": 1.0},
    ),
    RouteEvent(
        generation=31,
        client_region="eu-central-1",
        route="chat",
        at=NOW_AT - 7300 * SECOND_US,
        change=ChangeKind.HARD,
        sentence="qwen/qwen3-32b fails; deepseek/deepseek-v4-flash takes over",
        weights={"deepseek/deepseek-v4-flash": 1.0, "qwen/qwen3-32b": 0.0},
    ),
)
PUBLIC = {
    "deepseek": "https://api.deepseek.com/v1",
    "qwen": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    "groq": "https://api.groq.com/openai/v1",
}


def at_public_addresses(table: RouteTable) -> RouteTable:
    """The table with members at the addresses of their providers, which hosted gateways know."""
    entries = tuple(replace(entry, base_url=PUBLIC[entry.provider]) for entry in table.entries)
    return replace(table, entries=entries)


EXPLANATION = Explanation(
    table=CHAT,
    steps=(
        "zhipu/glm-5 is left out: 2 of 6 samples needed",
        "deepseek/deepseek-v4-flash costs 198.1 ms, keeps the objective: yes, n 359",
        "weights move towards deepseek/deepseek-v4-flash",
    ),
    inputs='{"at":1,"route":{"name":"chat"}}',
    before='{"incumbent":"deepseek/deepseek-v4-flash"}',
    replays=True,
)
__all__ = [
    "CHAT",
    "EVENTS",
    "EXPIRED",
    "EXPLANATION",
    "NOW_AT",
    "TABLES",
    "UNKNOWN_YET",
    "VOICE",
    "WINDOW",
    "at_public_addresses",
]


def fresh(generation: int, *, seconds: float = 3600) -> RouteTable:
    """A table built now, with all traffic on its first (even generations) or second member, stale after `seconds`."""
    now = now_at()
    first, second, *others = at_public_addresses(CHAT).entries
    shares = (1.0, 0.0) if generation % 2 == 0 else (0.0, 1.0)
    entries = (replace(first, weight=shares[0]), replace(second, weight=shares[1]), *others)
    stale_at = now + round(seconds * SECOND_US)
    return replace(
        CHAT,
        generation=generation,
        etag=f"{generation}-0",
        built_at=now,
        fresh_until_at=stale_at,
        stale_until_at=stale_at,
        entries=entries,
    )


def simulated_member(base_url: str, *, rank: int, dialect: str = "openai-chat") -> RouteEntry:
    """A member that the simulator serves: the first one, with all traffic, or the second."""
    model = ("fault-none", "fault-crlf")[rank - 1]
    return RouteEntry(
        rank=rank,
        weight=float(rank == 1),
        target=f"sim/{model}",
        provider="sim",
        model=model,
        dialect=dialect,
        base_url=base_url,
        credential_ref="sim",
    )
