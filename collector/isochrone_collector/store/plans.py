"""Applied plans, and every target that was ever planned."""

from dataclasses import asdict, dataclass

from psycopg.types.json import Jsonb

from isochrone_collector.store.postgres.pool import Connection, execute, fetch, fetch_one, query
from isochrone_wire.answers import Window
from isochrone_wire.model import Plan, Price, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistoryRow:
    """The origin of a plan: the user and instant of `apply`, and the version it restored, if any."""

    version: int
    applied_at: int
    applied_by: str
    restores: int | None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpanRow:
    """A plan in force from `applied_at` to `until_at`, which is `None` for the newest."""

    version: int
    applied_at: int
    until_at: int | None


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
    """The origin of a plan: its document, the user and the instant of `apply`, the version it restores, if any, and its
    encoded signature, if any.
    """

    document: str
    applied_at: int
    applied_by: str
    restores: int | None = None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _DocumentRow:
    document: str


async def lock(connection: Connection) -> None:
    """Prevent other plans from being applied until this transaction ends."""
    await execute(connection, "take_lock", key=_LOCK_KEY)


async def newest(connection: Connection) -> PlanRow | None:
    """Return the plan in force, if any was ever applied."""
    return await fetch_one(connection, "newest_plan", PlanRow)


async def of_window(connection: Connection, window: Window) -> list[PlanSpanRow]:
    """Return the plans that were in force during a window, oldest first."""
    return await fetch(
        connection,
        "plans_of_window",
        PlanSpanRow,
        from_at=window.from_at,
        until_at=window.until_at,
    )


async def of_version(connection: Connection, version: int) -> PlanHistoryRow | None:
    """Return the origin of one version; `None` for an unknown version."""
    return await fetch_one(connection, "plan_of_version", PlanHistoryRow, version=version)


async def document(connection: Connection, version: int) -> str | None:
    """Return the original document of one version; `None` for an unknown version."""
    found = await fetch(connection, "plan_document", _DocumentRow, version=version)
    return found[0].document if found else None


async def history(connection: Connection, *, limit: int) -> list[PlanHistoryRow]:
    """Return the newest plans, newest first."""
    return await fetch(connection, "plan_history", PlanHistoryRow, limit=limit)


async def insert(connection: Connection, plan: Plan, origin: PlanOrigin) -> None:
    """Put a plan into force, with its targets and its baseline region."""
    await execute(
        connection,
        "insert_plan",
        version=plan.version,
        document=origin.document,
        applied_at=origin.applied_at,
        applied_by=origin.applied_by,
        restores=origin.restores,
        signature=origin.signature,
    )
    await execute(connection, "register_region", name=plan.baseline)
    described = [_parameters(target, plan.version) for target in plan.targets]
    async with connection.cursor() as cursor:
        await cursor.executemany(query("insert_target"), described)
        await cursor.executemany(query("describe_target"), described)


async def targets(connection: Connection) -> list[TargetRow]:
    """Return every target that was ever planned, by name, the newest of a name first."""
    return await fetch(connection, "targets", TargetRow)


def _parameters(target: Target, version: int) -> dict[str, object]:
    price = _NO_PRICE if target.price is None else _price(target.price)
    return {
        "id": target.id,
        "name": target.name,
        "provider": target.provider,
        "model": target.model,
        "base_url": target.base_url,
        "dialect": target.dialect,
        "workload": Jsonb(asdict(target.workload)),
        "every_us": target.every_us,
        "overlap": target.overlap.value,
        "credential": target.credential,
        "region": target.region,
        "version": version,
        **price,
    }


def _price(price: Price) -> dict[str, float]:
    return {"usd_per_m_input": price.usd_per_m_input, "usd_per_m_output": price.usd_per_m_output}
