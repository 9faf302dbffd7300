"""Changes of route tables: each generation as it is published, and the events of a window."""

from isochrone_client.formats import UNKNOWN, between, moment, number
from isochrone_client.pages.targets import PROVIDERS, without_providers
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import Window
from isochrone_wire.json_format import to_json_value
from isochrone_wire.queries.documents import FORMATS
from isochrone_wire.routes import SCHEMA as TABLE_SCHEMA
from isochrone_wire.routes import ChangeKind, RouteEvent, RouteEventList, RouteTable

_HUNDRED = 100.0
_COLOUR = {ChangeKind.HARD: "red", ChangeKind.FREEZE: "red", ChangeKind.FAST: "yellow", ChangeKind.SOFT: "yellow"}


def page(tables: tuple[RouteTable, ...], *, now_at: int) -> Page[RouteTable]:
    """One line per table for people, by generation; all fields of each table for programs. Instants on the day of
    `now_at` are shown without the date.
    """
    return Page(
        schema=TABLE_SCHEMA,
        title="route tables",
        fields=wire_fields(RouteTable),
        columns=(
            Column(heading="built", unit="UTC", text=lambda row: moment(row.built_at, now_at=now_at), reserved=11),
            Column(heading="generation", text=lambda row: str(row.generation), priority=2, reserved=10),
            Column(heading="region", text=lambda row: row.client_region, wide=True, reserved=14),
            Column(heading="route", text=lambda row: row.route, wide=True, reserved=8),
            Column(
                heading="weights",
                text=_weights,
                wide=True,
                prose=True,
                priority=1,
                reserved=20,
                short=lambda row: without_providers(_weights(row)),
                short_of=PROVIDERS,
            ),
            Column(
                heading="what changed",
                text=lambda row: row.sentence,
                style=lambda row: _COLOUR.get(row.change, ""),
                wide=True,
                prose=True,
                reserved=20,
                short=lambda row: without_providers(row.sentence),
                short_of=PROVIDERS,
            ),
        ),
        rows=tuple(sorted(tables, key=lambda table: table.generation)),
    )


def events_page(answer: RouteEventList, *, now_at: int) -> Page[RouteEvent]:
    """The page of the events of a window, newest first."""
    return Page(
        schema=FORMATS["RouteEventList"].schema,
        title=f"changes of route tables between {between(answer.window)}",
        facts={"window": to_json_value(answer.window)},
        fields=wire_fields(RouteEvent),
        columns=(
            Column(heading="at", unit="UTC", text=lambda row: moment(row.at, now_at=now_at)),
            Column(heading="generation", text=lambda row: str(row.generation), priority=2),
            Column(heading="region", text=lambda row: row.client_region, wide=True),
            Column(heading="route", text=lambda row: row.route, wide=True),
            Column(
                heading="change",
                text=lambda row: row.change.value,
                style=lambda row: _COLOUR.get(row.change, ""),
                wide=True,
                priority=1,
            ),
            Column(
                heading="what changed",
                text=lambda row: row.sentence,
                wide=True,
                prose=True,
                short=lambda row: without_providers(row.sentence),
                short_of=PROVIDERS,
            ),
        ),
        rows=tuple(sorted(answer.events, key=lambda row: -row.generation)),
    )


def empty_message(window: Window) -> str:
    """The message for a window without events."""
    return f"no table changed between {between(window)}"


def _weights(table: RouteTable) -> str:
    """The members with a weight: `deepseek/v4 75 %, qwen/qwen3 25 %`."""
    weighted = [entry for entry in table.entries if entry.weight > 0]
    return ", ".join(f"{one.target} {number(_HUNDRED * one.weight, decimals=0)} %" for one in weighted) or UNKNOWN
