"""The pages of drift and alerts, in addition to their golden files."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from fixtures.fake_collector import FakeCollector
from isochrone_client.cli import cli
from isochrone_client.errors import InsufficientError
from isochrone_client.pages import alerts
from isochrone_client.render import renderer
from isochrone_client.render.page import RenderOptions
from isochrone_wire.answers import Metric
from isochrone_wire.operations import AlertDelivery, DeliveryState
from testdata.insights import ALERTS, DRIFT


def test_a_change_of_speed_is_in_tokens_per_second() -> None:
    """Each metric has its own heading with its unit, and rates are not divided by a thousand."""
    slower = replace(DRIFT.events[0], metric=Metric.TOKENS_PER_SECOND, before=60.0, after=42.0, change_percent=-30.0)
    text = renderer("table").whole(alerts.drift_page(replace(DRIFT, events=(slower, *DRIFT.events))), RenderOptions())
    assert text.index("ttft, ms") < text.index("tokens_per_second, tokens/s")
    numbers = text.partition("tokens_per_second, tokens/s")[2].split()
    assert numbers[numbers.index("-30.0") - 2 :][:2] == ["60", "42"]


@pytest.mark.parametrize(
    ("watched", "too_short", "sentence"), [(0, 3, "none of 3 series has the 60 rounds"), (0, 0, "no samples between")]
)
def test_nothing_to_look_at_is_insufficient(watched: int, too_short: int, sentence: str) -> None:
    """Without a series that is long enough there is an error with a hint."""
    with pytest.raises(InsufficientError, match=sentence) as raised:
        alerts.require_watched(replace(DRIFT, events=(), watched=watched, too_short=too_short))
    assert raised.value.hint


def test_no_change_is_an_answer(observatory: FakeCollector) -> None:
    """If no watched series changed, the exit code is 0 and a message is on stderr."""
    observatory.drift = replace(DRIFT, events=())
    done = CliRunner().invoke(cli, ["drift", "--collector", observatory.address])
    assert done.exit_code == 0
    assert "no lasting change between" in done.stderr
    assert "4 series watched; 1 more had fewer than 60 rounds" in done.stderr


def test_missing_webhook_is_reported(observatory: FakeCollector) -> None:
    """Without a webhook, the list ends with the option that sets one, even if it is empty."""
    observatory.alerts = replace(ALERTS, webhook=False)
    assert "serve --alert-url" in CliRunner().invoke(cli, ["alerts", "--collector", observatory.address]).stdout
    observatory.alerts = replace(ALERTS, webhook=False, alerts=())
    done = CliRunner().invoke(cli, ["alerts", "--collector", observatory.address])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "serve --alert-url" in done.stderr


def test_receivers_are_shown_apart_where_they_differ() -> None:
    """One word for all receivers if they agree, else the names of those that have it not."""
    told = AlertDelivery(receiver="chat", state=DeliveryState.DELIVERED, delivered_at=1, attempts=1)
    silenced = AlertDelivery(receiver="oncall", state=DeliveryState.SILENCED)
    lost = AlertDelivery(receiver="oncall", state=DeliveryState.GIVEN_UP, attempts=9, last_error="no connection")
    for deliveries, words in (
        ((told, replace(told, receiver="oncall")), "  yes"),
        ((replace(told, attempts=3),), "yes, attempt 3"),
        ((told, silenced), "silenced: oncall"),
        ((told, lost), "given up: oncall [1]"),
    ):
        row = replace(ALERTS.alerts[0], deliveries=deliveries)
        text = renderer("table").whole(alerts.page(replace(ALERTS, alerts=(row,))), RenderOptions(width=300))
        assert words in text
        assert ("[1]" in text) == ("[1]" in words)
