"""The plan in force: applied by an operator, fetched by agents, and cached by every collector."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import blake2b

import structlog

from isochrone_collector.analysis.differential.participation import PlanSpan
from isochrone_collector.errors import BadRequest, SchemaError, UnknownName
from isochrone_collector.plans.diff import compare, same_meaning, unchanged
from isochrone_collector.plans.document_reader import DocumentReader
from isochrone_collector.plans.fleet_check import Fleet, related, unfit
from isochrone_collector.store import audit, vantages
from isochrone_collector.store import plans as table
from isochrone_collector.store.plans import PlanHistoryRow, PlanOrigin, PlanRow
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.postgres.values import fields_of
from isochrone_collector.store.probe_queries import Scope, recorded
from isochrone_collector.store.vantages import VantageRow
from isochrone_common.plan_signature import SignatureError, SignedPlan, format_key, signer, verify
from isochrone_wire.answers import Window
from isochrone_wire.durations import HOUR_US
from isochrone_wire.json_format import rfc3339
from isochrone_wire.model import DAY_US, SECOND_US, Plan
from isochrone_wire.operations import PlanChange, PlanDocument, PlanHistory, PlanVersion
from isochrone_wire.plan_document.document import load
from isochrone_wire.rounds import phase_ids
from isochrone_wire.workloads import MAX_NAME_CHARS

# A plan of a thousand targets takes 0.2 MB.
_KEPT = 128
# Returns the document of a version.
_Read = Callable[[int], Awaitable[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The intervals of a plan's targets in microseconds, by target id, and the ids that set their phases."""

    every_us: Mapping[int, int]
    phase_ids: Mapping[int, int]


def parsed(version: int, document: str) -> Plan:
    """Return the plan of a stored document, which was valid for the collector that applied it. Raises `SchemaError`."""
    reading = load(document, version=version, stored=True)
    if reading.plan is None:
        raise SchemaError(
            f"plan {version} was applied by a newer collector: {'; '.join(reading.problems)}",
            hint="upgrade this collector",
        )
    return reading.plan


def _facts(version: int, document: str) -> _Facts:
    plan = parsed(version, document)
    every_us = {target.id: target.every_us for target in plan.targets}
    return _Facts(every_us=every_us, phase_ids=phase_ids(plan.targets, plan.routes))


_log = structlog.get_logger()

MAX_HISTORY = 1_000
_DEFAULT_HISTORY = 20


class Plans:
    """The newest plan as of the last `refresh`; another collector may have applied a newer one since then."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self.current: Plan | None = None
        self.known_targets: frozenset[int] = frozenset()
        self._refreshed_at = 0
        self._refreshing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._documents = DocumentReader()
        # Of stored plans, by version and instant: a restored database gives the same version to another plan.
        self._facts: dict[tuple[int, int], _Facts] = {}
        self._reading_past = asyncio.Lock()

    @property
    def version(self) -> int:
        """Return the version of the plan in force; 0 before the first."""
        return self.current.version if self.current else 0

    @property
    def content_hash(self) -> bytes:
        """Return the content hash of the plan in force; empty before the first."""
        return self.current.content_hash if self.current else b""

    async def refresh(self) -> None:
        """Read the plan in force from the database. Raises `DatabaseUnavailable`."""
        # One at a time: an older plan must not replace a newer one.
        async with self._reading:
            began_at = self._clock()
            async with self._database.connection() as connection:
                newest = await table.newest(connection)
            # In a thread, because a plan of a thousand targets takes half a second.
            plan = await asyncio.to_thread(_plan_in_force, newest) if newest else None
            # Not the versions alone, because a restored database gives the same version to another plan.
            if plan != self.current:
                async with self._database.connection() as connection:
                    self.known_targets = frozenset(row.id for row in await table.targets(connection))
                self.current = plan
                _log.info("plan.loaded", version=self.version, targets=len(plan.targets) if plan else 0)
            # Now, because callers that wait for a refresh need its result.
            self._refreshed_at = began_at

    async def refresh_after_now(self) -> None:
        """Return after a refresh that began after this call; there is one a second at most, shared by all callers."""
        called_at = self._clock()
        async with self._refreshing:
            if self._refreshed_at > called_at:
                return
            pause_us = self._refreshed_at + SECOND_US - self._clock()
            if 0 < pause_us <= SECOND_US:
                await asyncio.sleep(pause_us / SECOND_US)
            await self.refresh()

    def fetch(self, if_version: int | None, if_content_hash: bytes) -> Plan | None:
        """Return the plan in force, or `None` if the caller already has it or there is none."""
        is_known = (if_version, if_content_hash) == (self.version, self.content_hash)
        return None if is_known else self.current

    async def apply(self, document: str, *, dry_run: bool, applied_by: str, signature: bytes = b"") -> PlanChange:
        """Put a document into force unless `dry_run`; return the changes, or all problems of the document.

        Raises `BadRequest` if `applied_by` is not a valid name or `signature` does not belong to the document, and
        `DatabaseUnavailable`.
        """
        applied_by = _checked_name(applied_by)
        return await self._apply(document, dry_run=dry_run, applied_by=applied_by, signature=signature)

    async def roll_back(self, to_version: int, *, dry_run: bool, applied_by: str, signature: bytes = b"") -> PlanChange:
        """Put an earlier version into force again, unless `dry_run`. Raises `UnknownName`, and as `apply`."""
        applied_by = _checked_name(applied_by)
        _, document = await self._stored(to_version)
        return await self._apply(
            document, dry_run=dry_run, applied_by=applied_by, restores=to_version, signature=signature
        )

    async def history(self, limit: int) -> PlanHistory:
        """Return at most `limit` of the newest plans; 0 or less means the default. Raises `DatabaseUnavailable`."""
        async with self._database.connection() as connection:
            rows = await table.history(connection, limit=min(max(limit, 0) or _DEFAULT_HISTORY, MAX_HISTORY))
        counts = [await self._count_targets(row) for row in rows]
        return PlanHistory(
            plans=tuple(
                PlanVersion(
                    version=row.version,
                    applied_at=row.applied_at,
                    applied_by=row.applied_by,
                    targets=targets,
                    restores=row.restores,
                    signed_by=signer(row.signature or b""),
                )
                for row, targets in zip(rows, counts, strict=True)
            )
        )

    async def document(self, version: int | None) -> PlanDocument:
        """Return the document of one plan, or of the plan in force. Raises `UnknownName` and `DatabaseUnavailable`."""
        row, document = await self._stored(version)
        return PlanDocument(**fields_of(row) | {"document": document, "signature": row.signature or b""})

    async def _apply(
        self, document: str, *, dry_run: bool, applied_by: str, restores: int | None = None, signature: bytes
    ) -> PlanChange:
        # Without a connection, of which pushes have few.
        reading = await self._documents.read(document)
        if reading.plan is None:
            return PlanChange(version=self.version, problems=reading.problems)
        now_at, signed = self._clock(), signature or None
        origin = PlanOrigin(
            document=document, applied_at=now_at, applied_by=applied_by, restores=restores, signature=signed
        )
        async with self._database.transaction() as connection:
            await table.lock(connection)
            change = await self._compare(connection, reading.plan, origin, dry_run=dry_run)
        if change.changed and not dry_run:
            _log.info("plan.applied", version=change.version, applied_by=applied_by)
            await self.refresh()
        return change

    async def _compare(self, connection: Connection, plan: Plan, origin: PlanOrigin, *, dry_run: bool) -> PlanChange:
        """Return the changes to the plan in force, and put the new one into force unless `dry_run`."""
        newest = await table.newest(connection)
        old = await asyncio.to_thread(_plan_of, newest.version, newest.document) if newest else None
        plan = replace(plan, version=old.version + 1 if old else 1)
        signature, in_force = origin.signature or b"", (newest and newest.signature) or b""
        if signature:
            check_signature(signature, plan, in_force)
        # After a rollback agents need the new signature also where the content is the same.
        is_rollback = origin.restores is not None
        is_signed_again = bool(signature) and (is_rollback or is_new_signature(signature, in_force))
        if old is not None and same_meaning(old, plan) and not is_signed_again:
            return unchanged(old)
        if not dry_run:
            # Two plans never have the same instant, even if the clocks of two collectors differ.
            applied_at = max(origin.applied_at, newest.applied_at + 1 if newest else 0)
            await table.insert(connection, plan, replace(origin, applied_at=applied_at))
            action = "plan.rollback" if is_rollback else "plan.apply"
            await audit.record(connection, at=self._clock(), action=action, target=str(plan.version))
        known = await vantages.vantages(connection)
        change = compare(old, plan, vantages=len(known))
        return replace(
            change,
            changed=True,
            altered=(*signature_changes(in_force, signature), *change.altered),
            warnings=tuple(unfit(old, plan, await self._fleet(connection, known, related(old, plan)))),
        )

    async def _fleet(self, connection: Connection, known: Sequence[VantageRow], target_ids: tuple[int, ...]) -> Fleet:
        """Return the vantages of the last day, and the outcomes of these targets in the last hour."""
        now_at = self._clock()
        window = Window(from_at=now_at - HOUR_US, until_at=now_at)
        rows = await recorded(connection, Scope(window=window, target_ids=target_ids)) if target_ids else []
        outcomes: dict[int, set[str]] = {}
        for row in rows:
            outcomes.setdefault(row.target_id, set()).update(name for name, count in row.outcomes.items() if count)
        return Fleet(regions={one.region for one in known if one.last_seen_at > now_at - DAY_US}, outcomes=outcomes)

    async def _stored(self, version: int | None) -> tuple[PlanHistoryRow, str]:
        """Return a plan of the history with its document; `None` means the newest. Raises `UnknownName`."""
        async with self._database.connection() as connection:
            if version is not None:
                row = await table.of_version(connection, version)
            else:
                row = next(iter(await table.history(connection, limit=1)), None)
            document = await table.document(connection, row.version) if row else None
        if (row is None or document is None) and version is None:
            raise UnknownName("no plan has been applied yet")
        if row is None or document is None:
            raise UnknownName(f"there is no plan {version}; `isochrone-collector plan history` lists them")
        return row, document

    async def spans(self, connection: Connection, window: Window) -> list[PlanSpan]:
        """Return the plans that were in force during a window, with their spans of time. Raises `SchemaError`."""
        spans = []
        for version, applied_at, until_at in await table.of_window(connection, window):
            facts = await self._facts_of(version, applied_at, partial(table.document, connection))
            spans.append(PlanSpan(from_at=applied_at, until_at=until_at, **fields_of(facts)))
        return spans

    async def _count_targets(self, row: PlanHistoryRow) -> int:
        """Return the number of targets of a plan, 0 for one of a newer collector. Raises `DatabaseUnavailable`."""
        try:
            return len((await self._facts_of(row.version, row.applied_at, self._document)).every_us)
        except SchemaError:
            return 0

    async def _document(self, version: int) -> str | None:
        # Parsing holds no connection, of which pushes have few.
        async with self._database.connection() as connection:
            return await table.document(connection, version)

    async def _facts_of(self, version: int, applied_at: int, read: _Read) -> _Facts:
        key = version, applied_at
        async with self._reading_past:
            if key not in self._facts:
                facts = await asyncio.to_thread(_facts, version, await read(version) or "")
                while len(self._facts) >= _KEPT:
                    del self._facts[next(iter(self._facts))]
                self._facts[key] = facts
            return self._facts[key]


def _checked_name(applied_by: str) -> str:
    if len(applied_by) > MAX_NAME_CHARS or not applied_by.isprintable():
        raise BadRequest(f"applied_by must be printable, at most {MAX_NAME_CHARS} characters")
    return applied_by or "unknown"


def _plan_in_force(row: PlanRow) -> Plan:
    return replace(_plan_of(row.version, row.document), signature=row.signature or b"")


@lru_cache(maxsize=2)
def _plan_of(version: int, document: str) -> Plan:
    content_hash = blake2b(f"{version}\n{document}".encode(), digest_size=16).digest()
    return replace(parsed(version, document), version=version, content_hash=content_hash)


def check_signature(signature: bytes, plan: Plan, in_force: bytes) -> None:
    """Check that a signature is valid, of this plan, and newer than the one in force. Raises `BadRequest`."""
    signed = _verified(signature)
    if signed.plan != replace(plan, version=0):
        raise BadRequest("the signature is of another plan than this collector reads: use the same version of both")
    signed_at = _verified(in_force).signed_at if in_force else 0
    if signed.signed_at <= signed_at:
        raise BadRequest(
            f"the plan was signed at {rfc3339(signed.signed_at)}, before the one in force, of {rfc3339(signed_at)}: "
            "check the clock, and sign it again"
        )


def is_new_signature(signature: bytes, in_force: bytes) -> bool:
    """Return whether a signature is with another key than the one in force, if any."""
    return bool(signature) and (not in_force or _verified(signature).public_key != _verified(in_force).public_key)


def signature_changes(old: bytes, new: bytes) -> Iterator[str]:
    """Yield the change from one signature to another, as a line of `PlanChange.altered`."""
    if old and not new:
        yield "signature: none any more; agents that have pinned a key refuse this plan"
    elif is_new_signature(new, old):
        yield f"signature: {format_key(_verified(new).public_key)}"


def _verified(signature: bytes) -> SignedPlan:
    try:
        return verify(signature)
    except SignatureError as error:
        raise BadRequest(str(error)) from error
