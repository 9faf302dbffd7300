"""A server of another project, with a real model, tokenizer and stream: from its socket to a differential on screen."""

from collections import Counter
from pathlib import Path

from fixtures.agent import StartAgent
from fixtures.collector import StartCollector
from fixtures.transformers import ServedModel
from testdata.reading import printed_rows
from testdata.waiting import eventually

PLAN = """
baseline: us-east-2
every: 2s
workloads:
  short: {{prompt: "Explain recursion", max_output_tokens: 16}}
targets:
  - {{provider: transformers, model: {model}, base_url: "{base_url}", workload: short}}
"""
ROUNDS = 7


def test_a_real_model_from_two_vantages(
    transformers_server: ServedModel, start_collector: StartCollector, start_agent: StartAgent, tmp_path: Path
) -> None:
    """Two agents probe `transformers serve` for several rounds; the differential pairs them, and counts real tokens."""
    collector = start_collector()
    plan = PLAN.format(base_url=transformers_server.base_url, model=transformers_server.model)
    collector.apply(plan, tmp_path)
    agents = [
        start_agent(collector=collector.address, vantage=name, region=region)
        for name, region in (("us-1", "us-east-2"), ("sg-1", "ap-southeast-1"))
    ]

    def probes() -> list[dict[str, object]]:
        every = printed_rows(collector.http_address, "samples", "--limit", "100")
        # On a busy machine a round may be due before the probe of the one before it has ended.
        return [sample for sample in every if sample["outcome"] != "skipped_overlap"]

    def shared_rounds() -> int:
        by_round = Counter(sample["round_at"] for sample in probes())
        return list(by_round.values()).count(len(agents))

    eventually(60, lambda: shared_rounds() >= ROUNDS, f"{ROUNDS} rounds of both", every=1)
    assert [agent.stop() for agent in agents] == [0, 0]

    samples = probes()
    assert {sample["outcome"] for sample in samples} == {"ok"}, samples
    assert {sample["output_tokens"] for sample in samples} == {16}
    assert {sample["token_source"] for sample in samples} == {"usage"}
    [row] = printed_rows(collector.http_address, "diff", "--baseline", "us-east-2", "--against", "ap-southeast-1")
    assert isinstance(row["n"], int)
    # Probes that waited for this machine are not compared.
    assert row["n"] >= ROUNDS or row["baseline_side"]["left_out"] or row["region_side"]["left_out"]
    assert row["shift"] is not None
