"""Contexts of the configuration: names, collectors, identity files and defaults."""

from dataclasses import dataclass

from isochrone_client.formats import UNKNOWN
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields

SCHEMA = "isochrone.contexts/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow:
    """One context; `timeout` is in seconds, and a default that is not set is `None`."""

    name: str
    current: bool
    collector: str
    identity: str | None
    output: str | None
    timeout: float | None
    baseline: str | None


def page(rows: tuple[ContextRow, ...]) -> Page[ContextRow]:
    """The page of all contexts."""
    return Page(
        schema=SCHEMA,
        title="contexts",
        fields=wire_fields(ContextRow),
        columns=(
            Column(heading="", text=lambda row: "*" if row.current else ""),
            Column(heading="name", text=lambda row: row.name, wide=True),
            Column(heading="collector", text=lambda row: row.collector, wide=True),
            Column(heading="identity", text=lambda row: row.identity or UNKNOWN, wide=True, priority=2),
            Column(heading="defaults", text=_defaults, wide=True, prose=True, priority=1),
        ),
        rows=rows,
        notes=(*(("*: the current context",) if any(row.current for row in rows) else ()), f"{UNKNOWN}: not set"),
    )


def _defaults(row: ContextRow) -> str:
    values = {"output": row.output, "timeout": row.timeout, "baseline": row.baseline}
    return " ".join(f"{name}={value}" for name, value in values.items() if value is not None) or UNKNOWN
