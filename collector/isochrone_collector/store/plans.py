from dataclasses import asdict, dataclass
from typing import Any

from isochrone_collector.store.postgres import pool
from isochrone_collector.store.postgres.values import fields_of, parameters_of
from isochrone_wire.answers import Window
from isochrone_wire.model import Plan, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistoryRow:
    """The origin of a plan: the user and instant of `apply`, and the version it restored, if any."""

    version: int
    applied_at: int
    applied_by: str
    restores: int | None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """The plan in force: its document, the instant of `apply`, and its encoded signature, if it is signed."""

    version: int
    document: str
    applied_at: int
    signature: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A target that is or was planned. Prices are in US dollars per million tokens."""

    id: int
    name: str
    provider: str
    model: str
    every_us: int
    usd_per_m_input: float | None
    usd_per_m_output: float | None
    last_version: int


_LOCK_KEY = 4_600_002
_NO_PRICE: dict[str, None] = {"usd_per_m_input": None, "usd_per_m_output": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOrigin:
    """The origin of a plan: who applied which document when, the version it restores, and its encoded signature."""

    document: str
    applied_at: int
    applied_by: str
    restores: int | None = None
    signature: bytes | None = None


async def lock(connection: pool.Connection) -> None:
    """Prevent other plans from being applied until this transaction ends."""
    await pool.execute(connection, "take_lock", key=_LOCK_KEY)


async def newest(connection: pool.Connection) -> PlanRow | None:
    """Return the plan in force, if any was ever applied."""
    return await pool.fetch_one(connection, "newest_plan", PlanRow)


async def of_window(connection: pool.Connection, window: Window) -> list[tuple[Any, ...]]:
    """Return the versions that were in force during a window, oldest first, each with its begin and its end, which is
    `None` for the newest plan.
    """
    return await pool.fetch_tuples(connection, "plans_of_window", **fields_of(window))


async def of_version(connection: pool.Connection, version: int) -> PlanHistoryRow | None:
    """Return the origin of one version; `None` for an unknown version."""
    return await pool.fetch_one(connection, "plan_of_version", PlanHistoryRow, version=version)


async def document(connection: pool.Connection, version: int) -> str | None:
    """Return the original document of one version; `None` for an unknown version."""
    return next(iter(await pool.fetch_values(connection, "plan_document", version=version)), None)


async def history(connection: pool.Connection, *, limit: int) -> list[PlanHistoryRow]:
    """Return the newest plans, newest first."""
    return await pool.fetch(connection, "plan_history", PlanHistoryRow, limit=limit)


async def insert(connection: pool.Connection, plan: Plan, origin: PlanOrigin) -> None:
    """Put a plan into force, with its targets and its baseline region."""
    await pool.execute(connection, "insert_plan", version=plan.version, **fields_of(origin))
    await pool.execute(connection, "register_region", name=plan.baseline)
    described = [_parameters(target, plan.version) for target in plan.targets]
    async with connection.cursor() as cursor:
        await cursor.executemany(pool.query("insert_target"), described)
        await cursor.executemany(pool.query("describe_target"), described)


async def targets(connection: pool.Connection) -> list[TargetRow]:
    """Return every target that was ever planned, by name, the newest of a name first."""
    return await pool.fetch(connection, "targets", TargetRow)


def _parameters(target: Target, version: int) -> dict[str, object]:
    described = {**fields_of(target), "workload": asdict(target.workload), "version": version}
    return parameters_of({**described, **(asdict(target.price) if target.price else _NO_PRICE)})
