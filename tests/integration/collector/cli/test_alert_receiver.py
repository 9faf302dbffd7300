"""`isochrone-collector alerts listen`: the receiver to try alerts with."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from isochrone_collector import webhook_signature
from isochrone_collector.clock import now_at
from isochrone_wire.model import SECOND_US

SECRET = b"a secret of thirty-two bytes 123"
BODY = b'{"type":"isochrone.test"}'


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The real command, and the address it tells."""
    file = tmp_path / "alert.secret"
    file.write_text(webhook_signature.format_secret(SECRET))
    command = [sys.executable, "-m", "isochrone_collector", "alerts", "listen", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--alert-secret-file", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    yield process, process.stderr.readline().split()[-1]
    process.terminate()
    process.communicate()


def test_good_alerts_are_printed_once_and_others_refused(listening: tuple[subprocess.Popen[str], str]) -> None:
    """A signed alert is a line on stdout, its repetition is taken silently, and a forged one is a 401."""
    process, address = listening
    headers = webhook_signature.headers(SECRET, message="alert_1", sent_s=now_at() // SECOND_US, body=BODY)
    forged = headers | {"webhook-signature": "v1,AAAA"}
    with httpx.Client(trust_env=False) as client:
        statuses = [client.post(address, content=BODY, headers=one).status_code for one in (headers, headers, forged)]
        statuses.append(client.post(address, content=b"x" * 70_000, headers=headers).status_code)
    assert statuses == [204, 204, 401, 411]
    process.terminate()
    assert process.stdout is not None
    assert process.stdout.read() == BODY.decode() + "\n"
