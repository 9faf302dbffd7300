"""`isochrone-agent probe` as a person runs it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fix_simulator import Simulator


def probe(*options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isochrone_agent", "probe", *options]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


def test_a_person_sees_every_phase(fault_simulator: Simulator) -> None:
    """Each run is a line with its phases, and the end says what they amount to."""
    done = probe("--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--runs", "3")
    assert done.returncode == 0, done.stderr
    for word in ("dns", "tcp", "tls", "ttfb", "ttft", "tok/s", "rtt", "median of 3 of 3 runs"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_a_program_gets_json(fault_simulator: Simulator) -> None:
    """JSON carries every field of the samples, under the names of the wire."""
    done = probe("--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--output", "json")
    document = json.loads(done.stdout)
    sample = document["samples"][0]
    assert document["schema"] == "isochrone.probe/1"
    assert (sample["outcome"], sample["output_tokens"], sample["token_source"]) == ("ok", 40, "usage")
    assert sample["ttft_cold_us"] == sample["connect_us"] + sample["ttft_us"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("fault-401", "answered with an error"),
        ("fault-429", "left alone"),
        ("fault-404", "mostly ends in /v1"),
        ("fault-html", "mostly ends in /v1"),
        ("fault-silence", "raise it with --timeout"),
        ("fault-cut", "broke off"),
    ],
)
def test_each_failure_has_a_sentence(fault_simulator: Simulator, model: str, words: str) -> None:
    """A run that fails says what that means, and the command fails."""
    done = probe("--base-url", fault_simulator.base_url, "--model", model, "--timeout", "0.5")
    assert done.returncode == 1
    assert words in done.stdout
    assert "Traceback" not in done.stderr


def test_a_missing_key_is_said_before_any_request(fault_simulator: Simulator) -> None:
    """The variable is named, the exit code is that of wrong usage, and nothing was sent."""
    before = len(fault_simulator.truth())
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--key-env", "NO_SUCH_KEY"]
    done = probe(*options)
    assert (done.returncode, "NO_SUCH_KEY is not set" in done.stderr) == (2, True)
    assert len(fault_simulator.truth()) == before


def test_a_key_of_two_lines_is_said_before_any_request(fault_simulator: Simulator) -> None:
    """A variable with more than a key in it is named, and what it holds is not shown."""
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-crlf", "--key-env", "TWO_LINES"]
    done = probe(*options, env={"TWO_LINES": "sk-SECRET\nsecond"})
    assert (done.returncode, "TWO_LINES holds more than one line" in done.stderr) == (2, True)
    assert "SECRET" not in done.stderr + done.stdout


@pytest.mark.parametrize("output", ["table", "json"])
def test_ctrl_c_keeps_what_was_measured(fault_simulator: Simulator, output: str) -> None:
    """Ctrl-C ends the runs; those that were done have their summary, or their document, and the exit code says so."""
    command = [sys.executable, "-m", "isochrone_agent", "probe", "--model", "fault-none", "--runs", "500"]
    command += ["--base-url", fault_simulator.base_url, "--output", output]
    before = len(fault_simulator.truth())
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while len(fault_simulator.truth()) < before + 3:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        told, complaint = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "of 500 runs" in complaint
    if output == "json":
        assert len(json.loads(told)["samples"]) >= 2
    else:
        assert "tokens/s: median of" in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["groq/llama", "--model", "m"], "two models are named: groq/llama and m"),
        (["anthropic/claude-sonnet-4-5", "--effort", "minimal"], "cannot be asked for the effort 'minimal'"),
        (["groq/llama", "--temperature", "3"], "'--temperature': 3.0 is not in the range"),
    ],
    ids=["two-models", "unknown-effort", "too-warm"],
)
def test_what_would_be_left_out_is_refused(options: list[str], words: str) -> None:
    """What is said on the command line is never dropped in silence: what cannot be done is wrong usage."""
    done = probe(*options)
    assert (done.returncode, words in " ".join(done.stderr.split())) == (2, True)


def test_a_temperature_is_sent_only_when_it_is_said(fault_simulator: Simulator) -> None:
    """Kimi K2.5 refuses every temperature but its own: a probe that names none is answered, one of 0 is refused."""
    options = ["--base-url", fault_simulator.base_url, "--model", "kimi-k2.5", "--max-tokens", "3"]
    assert probe(*options).returncode == 0
    done = probe(*options, "--temperature", "0")
    assert (done.returncode, "`temperature` does not support 0" in done.stdout) == (1, True)


def test_first_output_comes_at_once(fault_simulator: Simulator) -> None:
    """The best of three starts shows its first line within a second of starting the interpreter."""
    waits = []
    for _ in range(3):
        started = time.monotonic()
        command = [sys.executable, "-m", "isochrone_agent", "probe", "--model", "fault-crlf"]
        with subprocess.Popen(
            [*command, "--base-url", fault_simulator.base_url],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            waits.append(time.monotonic() - started)
    assert min(waits) < 1.0


def test_a_burst_tells_its_throughput(fault_simulator: Simulator) -> None:
    """`--burst 5` shows five streams a run and their tokens per second together; JSON has the same figures."""
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-none", "--burst", "5"]
    done = probe(*options, "--runs", "2")
    assert done.returncode == 0, done.stderr
    assert "burst 2: 5 of 5 streams" in done.stdout
    document = json.loads(probe(*options, "--output", "json").stdout)
    [burst] = document["bursts"]
    assert (burst["streams"], len(document["samples"])) == (5, 5)
    assert burst["tokens_per_second"] > 2 * burst["median_tokens_per_second"]


def test_a_sweep_fits_a_line(fault_simulator: Simulator) -> None:
    """`--sweep` asks with prompts of these lengths, and ends with the line through their first tokens."""
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-none", "--sweep", "50,500,2000", "--runs", "3"]
    document = json.loads(probe(*options, "--output", "json").stdout)
    prompts = {sample["prompt_tokens"] for sample in document["samples"]}
    assert len(prompts) >= 3
    assert document["sweep"]["points"] == 9
    assert "µs per prompt token" in probe(*options).stdout


@pytest.mark.parametrize("text", ["", "100", "a,b", "0,5"])
def test_a_sweep_wants_lengths(fault_simulator: Simulator, text: str) -> None:
    """Anything but two or more lengths is refused with an example."""
    done = probe("--base-url", fault_simulator.base_url, "--model", "m", "--sweep", text)
    assert (done.returncode, "write 100,1000,4000" in done.stderr) == (2, True)


def test_the_second_warm_run_has_no_phases(fault_simulator: Simulator) -> None:
    """`--warm` keeps the connection: the second run is reused and has no connect time."""
    options = ["--base-url", fault_simulator.base_url, "--model", "fault-none", "--warm", "--runs", "2"]
    first, second = json.loads(probe(*options, "--output", "json").stdout)["samples"]
    assert first["connect_us"] is not None
    assert (second["connect_us"], second["quality"]) == (None, ["reused"])
