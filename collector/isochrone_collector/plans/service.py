"""The plan in force: applied by an operator, fetched by agents, and cached by every collector."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

import structlog

from isochrone_collector.analysis.coverage import PlanSpan
from isochrone_collector.errors import BadRequest, SchemaError, UnknownName
from isochrone_collector.plans import signatures
from isochrone_collector.plans.diff import compare, same_meaning, unchanged
from isochrone_collector.store import audit, vantages
from isochrone_collector.store import plans as table
from isochrone_collector.store.plans import PlanOrigin
from isochrone_collector.store.postgres.pool import Connection, Database
from isochrone_collector.store.rows import PlanHistoryRow, PlanRow
from isochrone_wire.answers import Window
from isochrone_wire.model import SECOND_US, Plan
from isochrone_wire.operations import PlanChange, PlanDocument, PlanHistory, PlanVersion
from isochrone_wire.plan_document.document import load
from isochrone_wire.plan_limits import MAX_NAME_CHARS
from isochrone_wire.rounds import phase_ids
from isochrone_wire.trust.plan_signature import signer

_log = structlog.get_logger()

MAX_HISTORY = 1_000
_DEFAULT_HISTORY = 20
_HASH_BYTES = 16


class Plans:
    """The newest plan as of the last `refresh`; another collector may have applied a newer one since then."""

    def __init__(self, *, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self.current: Plan | None = None
        self.known_targets: frozenset[int] = frozenset()
        self._refreshed_at = 0
        self._refreshing = asyncio.Lock()

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
        self._refreshed_at = self._clock()
        async with self._database.connection() as connection:
            newest = await table.newest(connection)
            # Not the versions alone, because a restored database gives the same version to another plan.
            plan = _plan_in_force(newest) if newest else None
            if plan != self.current:
                self.known_targets = frozenset(row.id for row in await table.targets(connection))
                self.current = plan
                _log.info("plan.loaded", version=self.version, targets=len(plan.targets) if plan else 0)

    async def refresh_after_now(self) -> None:
        """Return once there was a refresh after this call. Concurrent callers share one refresh, and there is at most
        one a second, so that pushes with unknown targets cannot keep the database busy.
        """
        called_at = self._clock()
        async with self._refreshing:
            if self._refreshed_at > called_at:
                return
            pause_us = self._refreshed_at + SECOND_US - self._clock()
            if 0 < pause_us <= SECOND_US:
                await asyncio.sleep(pause_us / SECOND_US)
            await self.refresh()

    def fetch(self, if_version: int | None, if_content_hash: bytes | None = None) -> Plan | None:
        """Return the plan in force, or `None` if the caller already has it or there is none. Agents of earlier versions
        send no hash.
        """
        is_known = self.version == if_version and if_content_hash in (None, self.content_hash)
        return None if is_known else self.current

    async def apply(self, document: str, *, dry_run: bool, applied_by: str, signature: bytes = b"") -> PlanChange:
        """Put a document into force unless `dry_run`; return the changes, or all problems of the document.

        Raises `BadRequest` if `applied_by` is not a valid name or `signature` does not belong to the document, and
        `DatabaseUnavailable`.
        """
        applied_by = _checked_name(applied_by)
        async with self._database.transaction() as connection:
            await table.lock(connection)
            change = await self._apply(
                connection, document, dry_run=dry_run, applied_by=applied_by, signature=signature
            )
        await self._announce(change, dry_run=dry_run, applied_by=applied_by)
        return change

    async def roll_back(self, to_version: int, *, dry_run: bool, applied_by: str, signature: bytes = b"") -> PlanChange:
        """Put the document of an earlier version into force as a new version, unless `dry_run`; return the changes.

        Raises `UnknownName` if there is no such version, and like `apply`.
        """
        applied_by = _checked_name(applied_by)
        async with self._database.transaction() as connection:
            await table.lock(connection)
            row = await _row_of(connection, to_version)
            change = await self._apply(
                connection,
                row.document,
                dry_run=dry_run,
                applied_by=applied_by,
                restores=to_version,
                signature=signature,
            )
        await self._announce(change, dry_run=dry_run, applied_by=applied_by)
        return change

    async def history(self, limit: int) -> PlanHistory:
        """Return at most `limit` of the newest plans; 0 means the default. Raises `DatabaseUnavailable`."""
        async with self._database.connection() as connection:
            rows = await table.history(connection, limit=min(limit or _DEFAULT_HISTORY, MAX_HISTORY))
        return PlanHistory(plans=tuple(_version(row) for row in rows))

    async def document(self, version: int | None) -> PlanDocument:
        """Return the document of one plan, or of the plan in force. Raises `UnknownName` and `DatabaseUnavailable`."""
        async with self._database.connection() as connection:
            row = await _row_of(connection, version)
        return PlanDocument(
            version=row.version,
            document=row.document,
            applied_at=row.applied_at,
            applied_by=row.applied_by,
            restores=row.restores,
            signature=row.signature or b"",
        )

    async def _announce(self, change: PlanChange, *, dry_run: bool, applied_by: str) -> None:
        if change.changed and not dry_run:
            _log.info("plan.applied", version=change.version, applied_by=applied_by)
            await self.refresh()

    async def _apply(
        self,
        connection: Connection,
        document: str,
        *,
        dry_run: bool,
        applied_by: str,
        restores: int | None = None,
        signature: bytes,
    ) -> PlanChange:
        newest = await table.newest(connection)
        old = _plan_of(newest.version, newest.document) if newest else None
        version = old.version if old else 0
        # Seconds for the largest document, in which pushes go on.
        reading = await asyncio.to_thread(load, document, version=version + 1)
        if reading.plan is None:
            return PlanChange(version=version, problems=reading.problems)
        in_force = (newest and newest.signature) or b""
        if signature:
            signatures.check(signature, reading.plan, in_force)
        # After a rollback agents need the new signature also where the content is the same.
        is_signed_again = bool(signature) and (restores is not None or signatures.is_new(signature, in_force))
        if old is not None and same_meaning(old, reading.plan) and not is_signed_again:
            return unchanged(old)
        if not dry_run:
            origin = PlanOrigin(
                document=document,
                # Two plans never have the same instant, even if the clocks of two collectors differ.
                applied_at=max(self._clock(), newest.applied_at + 1 if newest else 0),
                applied_by=applied_by,
                restores=restores,
                signature=signature or None,
            )
            await self._put_into_force(connection, reading.plan, origin)
        change = compare(old, reading.plan, vantages=len(await vantages.vantages(connection)))
        return replace(change, changed=True, altered=(*signatures.changes(in_force, signature), *change.altered))

    async def _put_into_force(self, connection: Connection, plan: Plan, origin: PlanOrigin) -> None:
        await table.insert(connection, plan, origin)
        action = "plan.apply" if origin.restores is None else "plan.rollback"
        await audit.record(connection, at=self._clock(), action=action, target=str(plan.version))

    async def spans(self, connection: Connection, window: Window) -> list[PlanSpan]:
        """Return the plans that were in force during a window, with their spans of time."""
        return [_span(row) for row in await table.of_window(connection, window)]


def _checked_name(applied_by: str) -> str:
    if len(applied_by) > MAX_NAME_CHARS or not applied_by.isprintable():
        raise BadRequest(f"applied_by must be printable, at most {MAX_NAME_CHARS} characters")
    return applied_by or "unknown"


async def _row_of(connection: Connection, version: int | None) -> PlanHistoryRow:
    """Return a plan of the history; `None` means the newest. Raises `UnknownName`."""
    if version is None:
        newest = await table.history(connection, limit=1)
        if not newest:
            raise UnknownName("no plan has been applied yet")
        return newest[0]
    row = await table.of_version(connection, version)
    if row is None:
        raise UnknownName(f"there is no plan {version}; `isochrone-collector plan history` lists them")
    return row


def _version(row: PlanHistoryRow) -> PlanVersion:
    return PlanVersion(
        version=row.version,
        applied_at=row.applied_at,
        applied_by=row.applied_by,
        targets=_targets_in(row),
        restores=row.restores,
        signed_by=signer(row.signature or b""),
    )


def _targets_in(row: PlanHistoryRow) -> int:
    try:
        return len(_plan_of(row.version, row.document).targets)
    except SchemaError:
        # A plan of a newer collector is still listed in the history.
        return 0


def _span(row: PlanRow) -> PlanSpan:
    plan = _plan_of(row.version, row.document)
    every_us = {target.id: target.every_us for target in plan.targets}
    phases = phase_ids(plan.targets, plan.routes)
    return PlanSpan(from_at=row.applied_at, until_at=row.until_at, every_us=every_us, phase_ids=phases)


def _plan_in_force(row: PlanRow) -> Plan:
    return replace(_plan_of(row.version, row.document), signature=row.signature or b"")


@lru_cache(maxsize=64)
def _plan_of(version: int, document: str) -> Plan:
    """Return the plan of a stored document, which was valid for the collector that applied it."""
    reading = load(document, version=version, stored=True)
    if reading.plan is None:
        raise SchemaError(
            f"plan {version} was applied by a newer collector: {'; '.join(reading.problems)}",
            hint="upgrade this collector",
        )
    content_hash = blake2b(f"{version}\n{document}".encode(), digest_size=_HASH_BYTES).digest()
    return replace(reading.plan, version=version, content_hash=content_hash)
