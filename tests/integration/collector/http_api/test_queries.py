"""Queries over HTTP: the documents of the commands, entity tags, errors, and the contract of the OpenAPI document."""

import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings

from fixtures.collector import Collector
from isochrone_client.cli import cli
from isochrone_client.window import now_at
from isochrone_collector.http_api import openapi
from isochrone_collector.http_api.queries import ENDPOINTS
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import MINUTE_US
from testdata.pushed_rounds import SG, US, Fleet, rounds_until
from testdata.waiting import eventually

PAGE = Path(__file__).parents[4] / "docs" / "http.md"
PLAN = f"""
baseline: {US}
every: 60s
targets:
  - {{provider: moonshot, model: kimi-k2.5, base_url: http://moonshot}}
  - {{provider: openai, model: gpt-5-mini, base_url: http://openai}}
"""
LATENCY_US = {"moonshot/kimi-k2.5": 200_000, "openai/gpt-5-mini": 300_000}
ROUNDS = 40
# Whole minutes that are over, so that no answer about them changes.
END_AT = now_at() // MINUTE_US * MINUTE_US - 10 * MINUTE_US
WINDOW = f"{rfc3339(END_AT - ROUNDS * MINUTE_US)[:16]}..{rfc3339(END_AT)[:16]}"


class Question(NamedTuple):
    """A path, its command, and the parameters of both."""

    path: str
    command: str
    options: dict[str, str]


E2E = {"window": WINDOW, "metric": "e2e", "limit": "0.5", "points": "7", "target": "moonshot/*"}
QUESTIONS = [
    Question(*parts)
    for parts in (
        ("/v1/targets", "targets", {}),
        ("/v1/vantages", "vantages", {}),
        ("/v1/leaderboard", "leaderboard", {"window": WINDOW}),
        ("/v1/leaderboard", "leaderboard", {"window": WINDOW, "by": "e2e", "region": US}),
        ("/v1/slo", "slo", {"window": WINDOW}),
        ("/v1/slo", "slo", {"window": WINDOW, "use": "voice", "region": US}),
        ("/v1/slo", "slo", {"window": WINDOW, "answer": "500", "limit": "8"}),
        ("/v1/diff", "diff", {"window": WINDOW}),
        ("/v1/diff", "diff", {"window": WINDOW, "baseline": SG, "only": "faster"}),
        ("/v1/diff", "diff", {"window": WINDOW, "sort": "target", "only": "decided"}),
        ("/v1/series", "series", {"window": WINDOW}),
        ("/v1/series", "series", E2E),
        ("/v1/series", "series", {"window": WINDOW, "metric": "tokens_per_second", "bins": "20"}),
        ("/v1/samples", "samples", {"window": WINDOW}),
        ("/v1/samples", "samples", {"window": WINDOW, "limit": "3", "region": SG}),
        ("/v1/coverage", "coverage", {"window": WINDOW}),
        ("/v1/spend", "coverage --spend", {}),
        ("/v1/incidents", "incidents", {"window": WINDOW}),
        ("/v1/alerts", "alerts", {"window": WINDOW}),
        ("/v1/drift", "drift", {"window": WINDOW}),
        ("/v1/route-events", "routes history", {"window": WINDOW}),
        ("/v1/rate-limits", "rate-limits", {"window": WINDOW, "points": "10"}),
        ("/v1/tiers", "tiers", {"window": WINDOW}),
        ("/v1/simulations", "simulate", {"window": WINDOW}),
    )
]

EMPTY = {"/v1/alerts", "/v1/drift", "/v1/incidents", "/v1/rate-limits", "/v1/route-events", "/v1/tiers"}


@pytest.fixture(scope="module")
def collector(shared_collector: Collector) -> Collector:
    shared_collector.call.apply(PLAN)
    fleet = Fleet(
        {target.name: target.id for target in shared_collector.call.targets().targets},
        phases=lambda region: {"rtt_us": 8_000 if region == US else 60_000},
    )
    rounds = rounds_until(END_AT, ROUNDS)
    fleet.push_rounds(shared_collector.call, rounds, lambda target, region: LATENCY_US[target] * (2 - (region == US)))
    return shared_collector


@pytest.fixture(scope="module")
def http(collector: Collector) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=collector.http, trust_env=False, timeout=60) as client:
        yield client


def printed(collector: Collector, command: str, options: dict[str, str], config: Path) -> dict[str, Any]:
    words = [*command.split(), *(word for name, value in options.items() for word in (f"--{name}", value))]
    environment = {"ISOCHRONE_COLLECTOR": collector.http_address, "XDG_CONFIG_HOME": str(config)}
    result = CliRunner().invoke(cli, [*words, "--output", "json"], env=environment, prog_name="isochrone")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.path)
def test_paths_have_documents(collector: Collector, http: httpx.Client, tmp_path: Path, question: Question) -> None:
    """For the same instant the answer over HTTP is the document that the command prints with `--output json`."""
    path, command, options = question

    def both() -> list[dict[str, Any]]:
        served = http.get(path, params=options).raise_for_status().json()
        found = (served, printed(collector, command, options, tmp_path))
        return [{name: part for name, part in one.items() if name != "answered_at"} for one in found]

    # Sentences on vantages have ages in them.
    eventually(10, lambda: (documents := both())[0] == documents[1], f"{path} is what `isochrone {command}` prints")
    served, _ = both()
    assert served["schema"].startswith("isochrone.")
    assert served["rows"] or path in (
        "/v1/alerts",
        "/v1/drift",
        "/v1/incidents",
        "/v1/rate-limits",
        "/v1/route-events",
        "/v1/tiers",
    )


def test_a_difference_has_the_explained_parts(collector: Collector, http: httpx.Client, tmp_path: Path) -> None:
    """`explain=true` adds the phases that `isochrone diff --explain` prints."""
    target = next(iter(LATENCY_US))
    (served,) = http.get("/v1/diff", params={"window": WINDOW, "target": target, "explain": "true"}).json()["rows"]
    (row,) = printed(collector, "diff", {"window": WINDOW, "explain": target}, tmp_path)["rows"]
    assert [part["name"] for part in served["parts"]] == ["rtt", "server"]
    assert served == {name: value for name, value in row.items() if name != "story"}
    assert http.get("/v1/diff", params={"window": WINDOW, "target": target}).json()["rows"][0]["parts"] == []


def test_every_path_of_a_query_is_compared() -> None:
    """Each path without names in it is compared with a command, except for costs, whose command adds the metric."""
    paths = {one.path for one in ENDPOINTS if "{" not in one.path} - {"/v1/region-costs"}
    assert {question.path for question in QUESTIONS} == paths


@pytest.mark.parametrize("question", QUESTIONS[::2], ids=lambda one: one.path)
def test_a_known_answer_is_not_sent_again(http: httpx.Client, question: Question) -> None:
    """The tag gives 304 while the answer is the same, whatever the instant is; another answer has another tag."""
    path, _, options = question

    def again() -> bool:
        first = http.get(path, params={**options, "window": "7d"} if "window" in options else options)
        tag = first.headers["etag"]
        assert first.status_code == 200
        assert tag.startswith('W/"')
        answer = http.get(first.url, headers={"If-None-Match": tag})
        return (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)

    eventually(10, again, f"{path} is current")
    if path in ("/v1/leaderboard", "/v1/diff", "/v1/series"):
        tags = {http.get(path, params={"window": WINDOW, "target": name}).headers["etag"] for name in LATENCY_US}
        assert len(tags) == len(LATENCY_US)


def test_an_answer_is_compressed_for_clients_that_accept_it(http: httpx.Client) -> None:
    """Body and tag are the same with and without compression; a small answer is sent as it is."""
    path = f"/v1/series?window={WINDOW}"
    packed, plain = (http.get(path, headers={"Accept-Encoding": coding}) for coding in ("gzip, br", "gzip;q=0"))
    assert [one.headers.get("content-encoding") for one in (packed, plain)] == ["gzip", None]
    assert [one.headers["vary"] for one in (packed, plain)] == ["Accept-Encoding"] * 2
    assert packed.headers["etag"] == plain.headers["etag"]
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    known = http.get(path, headers={"If-None-Match": plain.headers["etag"]})
    assert (known.status_code, known.headers.get("content-encoding")) == (304, None)
    assert known.headers["vary"] == "Accept-Encoding"
    small = http.get(f"/v1/alerts?window={WINDOW}")
    assert (small.status_code, small.headers.get("content-encoding")) == (200, None)
    assert "content-encoding" not in http.get("/v1/leaderboard?window=24").headers
    assert http.get("/v1/openapi.json").headers["content-encoding"] == "gzip"


def test_a_sample_is_found_by_its_id(collector: Collector, http: httpx.Client, tmp_path: Path) -> None:
    """A sample is found by its id over HTTP and by the command; another id, or none, is 404 with a hint."""
    row = http.get("/v1/samples", params={"window": WINDOW, "limit": "1"}).json()["rows"][0]
    found = http.get(f"/v1/samples/{row['id']}").raise_for_status().json()
    assert found["rows"] == [row]
    assert found["window"]["from_at"] == row["round_at"]
    assert found == printed(collector, "samples", {"id": row["id"]}, tmp_path)
    name = http.get("/v1/samples", params={"window": WINDOW, "limit": "1"}).json()["rows"][0]["id"]
    other = name[:-8] + ("A" if name[-8] != "A" else "B") + name[-7:]
    for unknown in (other, name[:-1], name.removeprefix("sample_"), "sample_", "7", "sample_" + "A" * 59):
        answer = http.get(f"/v1/samples/{unknown}")
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:isochrone:problem:unknown-name"), unknown
        assert "isochrone samples" in answer.json()["hint"]


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        ("/v1/leaderboard?by=tftt", 400, "did you mean 'ttft'"),
        ("/v1/leaderboard?windw=24h", 400, "did you mean 'window'"),
        ("/v1/leaderboard?window=24", 400, "'24' has no unit"),
        ("/v1/leaderboard?target=openai/gpt-5-mimi", 404, "openai/gpt-5-mini"),
        ("/v1/leaderboard?region=us-east-3", 404, "us-east-2"),
        ("/v1/diff?sort=percnt", 400, "did you mean 'percent'"),
        ("/v1/diff?only=faste", 400, "did you mean 'faster'"),
        ("/v1/series?points=501", 400, "'501' is not a whole number from 0 to 500"),
        ("/v1/series?bins=1", 400, "1 bins"),
        ("/v1/series?limit=0", 400, "'0' is not a number of seconds"),
        ("/v1/series?limit=1e3", 400, "'1e3' is not a number of seconds"),
        ("/v1/series?limit=1&metric=rtt", 400, "a limit applies to ttft"),
        ("/v1/samples?limit=1001", 400, "at most 1000"),
        ("/v1/incidents?past=yes", 400, "known: false, true"),
        ("/v1/coverage?format=csv", 400, "unknown format"),
        ("/v1/coverage?window=9999d", 400, "longer than 400 days"),
        ("/v1/coverage?from=2026-11-21T08:00:00Z&until=10000-01-01T00:00:00Z", 400, "is not an instant"),
        ("/v1/spend?window=24h", 400, "unknown parameter"),
    ],
)
def test_a_wrong_request_is_a_problem(http: httpx.Client, query: str, status: int, detail: str) -> None:
    """A wrong parameter is refused with its value and the nearest name, never ignored."""
    answer = http.get(query)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert detail in answer.json()["detail"]


def test_a_window_that_cannot_be_read_has_a_hint(http: httpx.Client) -> None:
    """The forms of a window are in the hint."""
    assert "last week" in http.get("/v1/coverage?window=soon").json()["hint"]


def test_paths_need_the_credential_of_a_reader(shared_guarded_collector: Collector) -> None:
    """With TLS every query is 401 without a credential, and answered to a reader."""
    trust = ssl.create_default_context(cafile=shared_guarded_collector.data_dir / "tls" / "certificate.pem")
    trust.check_hostname = False
    for endpoint in ENDPOINTS:
        path = re.sub(r"{\w+}", "x", endpoint.path)
        answer = httpx.get(f"{shared_guarded_collector.http}{path}", verify=trust)
        assert (answer.status_code, answer.json()["title"]) == (401, "Unauthorized"), path


@pytest.fixture(scope="module")
def schema() -> Any:
    """The OpenAPI document as a source of requests; its import takes a second, so only the test imports it."""
    import schemathesis

    return schemathesis.openapi.from_dict(openapi.document(ENDPOINTS))


@pytest.mark.parametrize("path", [endpoint.path for endpoint in ENDPOINTS])
def test_answers_keep_the_contract(collector: Collector, schema: Any, path: str) -> None:
    """Any request, valid or not, gets an answer that the OpenAPI document describes, and never an internal error."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    demanded = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
        checks.unsupported_method,
    ]

    @given(case=schema[path]["GET"].as_strategy())
    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def holds(case: Any) -> None:
        case.call_and_validate(base_url=collector.http, checks=demanded)

    holds()


def test_the_examples_of_the_page_work(http: httpx.Client) -> None:
    """Each request of docs/http.md is answered."""
    urls = re.findall(r"http://127\.0\.0\.1:4680(/[^'\"\s]*)", PAGE.read_text())
    assert len(urls) > 5
    sample = http.get("/v1/samples", params={"window": WINDOW, "limit": "1"}).json()["rows"][0]["id"]
    for url in urls:
        answer = http.get(url.replace("$ID", sample))
        assert answer.status_code == 200, (url, answer.text)
