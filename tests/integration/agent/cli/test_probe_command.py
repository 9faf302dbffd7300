"""`isochrone-agent probe` as a command."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from fixtures.simulator import Simulator
from testdata import preforked


def probe(*options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", **(env or {})}
    return preforked.run("isochrone_agent", "probe", *options, env=environment)


def test_the_table_has_every_phase(fault_simulator: Simulator) -> None:
    """Each run is one row with its phases, and a summary follows."""
    done = probe("--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--runs", "3")
    assert done.returncode == 0, done.stderr
    for word in ("dns", "tcp", "tls", "ttfb", "ttft", "tok/s", "rtt", "median of 3 of 3 runs"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_json_has_every_field(fault_simulator: Simulator) -> None:
    """JSON has every field of the samples, with the names of the wire format."""
    done = probe("--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--output", "json")
    document = json.loads(done.stdout)
    sample = document["samples"][0]
    assert document["schema"] == "isochrone.probe/1"
    assert (sample["outcome"], sample["output_tokens"], sample["token_source"]) == ("ok", 40, "usage")
    assert sample["ttft_cold_us"] == sample["connect_us"] + sample["ttft_us"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("fault-401", "returned an error"),
        ("fault-429", "throttled the request"),
        ("fault-404", "usually ends in /v1"),
        ("fault-html", "usually ends in /v1"),
        ("fault-silence", "increase --timeout"),
        ("fault-cut", "answer is incomplete"),
    ],
)
def test_each_failure_has_a_sentence(fault_simulator: Simulator, model: str, words: str) -> None:
    """A failed run is explained in one sentence, and the command fails."""
    done = probe("--base-url", fault_simulator.base_url, "--model", model, "--timeout", "0.5")
    assert done.returncode == 1
    assert words in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("limits", "code", "kept"),
    [
        (["--max-ttft", "60s", "--min-tps", "0.1"], 0, [True, True]),
        (["--max-ttft", "1ms", "--min-tps", "0.1"], 5, [False, True]),
        (["--max-ttft", "60s", "--min-tps", "1e9"], 5, [True, False]),
        (["--min-tps", "1e9"], 5, [False]),
    ],
)
def test_limits_decide_the_exit_code(
    fault_simulator: Simulator, tmp_path: Path, limits: list[str], code: int, kept: list[bool]
) -> None:
    """The exit code is 5 if a limit is not kept. JSON and summary have all verdicts, stderr those that failed."""
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    where = ["--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--runs", "3"]
    done = probe(*where, *limits, "--output", "json", "--summary", str(summary))
    assert done.returncode == code, done.stderr
    verdicts = json.loads(done.stdout)["limits"]
    assert [verdict["kept"] for verdict in verdicts] == kept
    assert [(verdict["runs"], verdict["failed"]) for verdict in verdicts] == [(3, 0)] * len(kept)
    assert done.stderr.count("limit not kept: ") == kept.count(False)
    shown = summary.read_text()
    assert shown.startswith("before\n")
    assert shown.count("limit kept") == kept.count(True)
    table = probe(*where, *limits)
    assert table.returncode == code
    assert table.stdout.count("limit not kept: ") == kept.count(False)


def test_no_success_is_1_with_and_without_limits(fault_simulator: Simulator) -> None:
    """If no run succeeds the exit code says so, and each limit is reported as not kept."""
    done = probe(
        "--base-url", fault_simulator.base_url, "--model", "fault-401", "--max-ttft", "60s", "--output", "json"
    )
    assert done.returncode == 1
    assert "1 of 1 runs failed" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-ttft", "500"], "'500' is not a duration"),
        (["--min-tps", "0"], "0.0 is not in the range"),
        (["--max-ttft", "1s", "--sweep", "10,100"], "do not go with --sweep"),
        (["--summary", "/nowhere/summary.md"], "No such file or directory"),
    ],
)
def test_limits_are_checked_before_any_request(fault_simulator: Simulator, options: list[str], words: str) -> None:
    """A limit or file that cannot be used is a usage error, and nothing is sent."""
    before = len(fault_simulator.truth())
    done = probe("--base-url", fault_simulator.base_url, "--model", "fault-crlf", *options)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert len(fault_simulator.truth()) == before


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "or choose another variable with --key-env"),
        ("", "A_KEY is not set"),
        ("sk-SECRET\nb", "A_KEY contains more than one"),
    ],
)
def test_a_bad_key_is_an_error_before_any_request(fault_simulator: Simulator, key: str, words: str) -> None:
    """The error names the variable and not its value, the exit code is 2, and nothing is sent."""
    before = len(fault_simulator.truth())
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--key-env", "A_KEY"]
    done = probe(*options, env={"A_KEY": key})
    assert (done.returncode, words in done.stderr) == (2, True)
    assert "SECRET" not in done.stderr + done.stdout
    assert len(fault_simulator.truth()) == before


@pytest.mark.parametrize("output", ["table", "json"])
def test_ctrl_c_keeps_what_was_measured(fault_simulator: Simulator, output: str) -> None:
    """Ctrl-C ends the runs; the finished ones are summarised or written as JSON, and the exit code is 130."""
    command = [sys.executable, "-m", "isochrone_agent", "probe", "--model", "fault-none", "--runs", "500"]
    command += ["--base-url", fault_simulator.base_url, "--output", output]
    before = len(fault_simulator.truth())
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while len(fault_simulator.truth()) < before + 3:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output_text, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "of 500 runs" in errors
    if output == "json":
        assert len(json.loads(output_text)["samples"]) >= 2
    else:
        assert "tokens/s: median of" in " ".join(output_text.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["groq/llama", "--model", "m"], "two models are named: groq/llama and m"),
        (["anthropic/claude-sonnet-4-5", "--effort", "minimal"], "does not support the effort 'minimal'"),
        (["groq/llama", "--temperature", "3"], "'--temperature': 3.0 is not in the range"),
        (["groq/llama", "--omit", "model"], "--omit: unknown optional field of dialect openai-chat 'model'"),
        (["--model", "m", "--base-url", "https://u:pw@h/{x}"], "--base-url: a URL must not contain a user or password"),
    ],
    ids=["two-models", "unknown-effort", "too-warm", "not-optional", "password"],
)
def test_conflicting_options_are_an_error(options: list[str], words: str) -> None:
    """No option is silently ignored: one that cannot be honoured is a usage error."""
    done = probe(*options)
    assert (done.returncode, words in " ".join(done.stderr.split())) == (2, True)


def test_a_temperature_is_sent_only_if_given(fault_simulator: Simulator) -> None:
    """Kimi K2.5 refuses every temperature but its own: a probe without one succeeds, a probe with 0 is refused."""
    options = ["--base-url", fault_simulator.base_url, "--model", "kimi-k2.5", "--max-tokens", "3"]
    assert probe(*options).returncode == 0
    done = probe(*options, "--temperature", "0")
    assert (done.returncode, "`temperature` does not support 0" in done.stdout) == (1, True)


def test_a_refused_field_is_named_and_can_be_omitted(fault_simulator: Simulator) -> None:
    """The error names the option with which the probe then succeeds."""
    options = [
        "--base-url",
        fault_simulator.base_url,
        "--model",
        "kimi-k2.5",
        "--max-tokens",
        "3",
        "--temperature",
        "0",
    ]
    refused = probe(*options, "--output", "json")
    assert (
        "try --omit temperature, or omit: [temperature] in the plan"
        in json.loads(refused.stdout)["samples"][0]["error"]
    )
    assert probe(*options, "--omit", "temperature").returncode == 0


def cpu_to_first_line(*words: str) -> float:
    """Run Python with these arguments until it prints a line; return the seconds of processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen([sys.executable, "-u", *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.kill()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_first_output_comes_at_once() -> None:
    """The first line comes before the answer, within five times the work of importing an HTTP client."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = ["--model", "m", "--base-url", f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "--timeout", "300"]
        reference = "import asyncio, click, httpcore, ssl; print()"
        waits = [
            (cpu_to_first_line("-m", "isochrone_agent", "probe", *where), cpu_to_first_line("-c", reference))
            for _ in range(3)
        ]
    ours, bare = (min(column) for column in zip(*waits, strict=True))
    assert ours < 5 * bare, (ours, bare)


def test_a_burst_reports_its_throughput(fault_simulator: Simulator) -> None:
    """`--burst 5` reports five streams per run and their combined tokens per second, in the table and in JSON."""
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-none", "--burst", "5"]
    done = probe(*options, "--runs", "2")
    assert done.returncode == 0, done.stderr
    assert "burst 2: 5 of 5 streams" in done.stdout
    document = json.loads(probe(*options, "--output", "json").stdout)
    [burst] = document["bursts"]
    assert (burst["streams"], len(document["samples"])) == (5, 5)
    # Of all streams, from the first request sent to the last token.
    samples = document["samples"]
    sent_s = [datetime.fromisoformat(one["dispatched_at"]).timestamp() + one["connect_us"] / 1e6 for one in samples]
    ended_s = [sent + one["e2e_us"] / 1e6 for sent, one in zip(sent_s, samples, strict=True)]
    tokens = sum(one["output_tokens"] for one in samples)
    assert burst["tokens_per_second"] == pytest.approx(tokens / (max(ended_s) - min(sent_s)), rel=0.01)


def test_a_sweep_fits_a_line(fault_simulator: Simulator) -> None:
    """`--sweep` sends prompts of these lengths, and prints the fit of TTFT to prompt tokens."""
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-none", "--sweep", "50,500,2000", "--runs", "3"]
    document = json.loads(probe(*options, "--output", "json").stdout)
    prompts = {sample["prompt_tokens"] for sample in document["samples"]}
    assert len(prompts) >= 3
    assert document["sweep"]["points"] == 9
    assert "µs per prompt token" in probe(*options).stdout


@pytest.mark.parametrize("text", ["", "100", "a,b", "0,5"])
def test_a_sweep_needs_two_lengths(fault_simulator: Simulator, text: str) -> None:
    """Anything but two or more lengths is a usage error with an example."""
    done = probe("--base-url", fault_simulator.base_url, "--model", "m", "--sweep", text)
    assert (done.returncode, "for example 100,1000,4000" in done.stderr) == (2, True)


def test_the_second_warm_run_has_no_phases(fault_simulator: Simulator) -> None:
    """`--warm` reuses the connection: the second run has no connect time."""
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-none", "--warm", "--runs", "2"]
    first, second = json.loads(probe(*options, "--output", "json").stdout)["samples"]
    assert first["connect_us"] is not None
    # A busy machine adds a flag of its own.
    assert (second["connect_us"], set(second["quality"]) - {"lagged"}) == (None, {"reused"})


def test_a_run_is_recorded_without_its_texts(fault_simulator: Simulator, tmp_path: Path) -> None:
    """`--record` writes one stream for a bug report, in the form of the corpus, and only one."""
    file = tmp_path / "stream.json"
    where = ["--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--record", str(file)]
    done = probe(*where)
    assert done.returncode == 0, done.stderr
    recorded = json.loads(file.read_text())
    assert (recorded["dialect"], recorded["expected"]["outcome"]) == ("openai-chat", "ok")
    assert recorded["expected"]["output_tokens"] == 40
    refused = probe(*where, "--runs", "2")
    assert refused.returncode == 2
    assert "records one stream" in refused.stderr
