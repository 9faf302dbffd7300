"""Every statement against what Citus allows, by PostgreSQL's own grammar: the same SQL serves one server or many nodes.

Citus itself does not run here. What it allows is written down as rules, each with statements that break it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any
from unittest.mock import patch

import pglast
import pytest
from alembic import op

from isochrone_collector.store import batches
from isochrone_collector.store.postgres import pool
from isochrone_collector.store.postgres.citus import DISTRIBUTED, REFERENCE
from isochrone_migrations import versions

# Nodes say of hardly any of their parts that it is there, and the grammar says it of most.
Node = Any
ast: Any = pglast.ast
enums: Any = pglast.enums
Rule = Callable[[Node], Iterator[str]]

SERIAL = {"serial", "serial4", "serial8", "bigserial", "smallserial", "serial2"}
KEYS = (enums.ConstrType.CONSTR_PRIMARY, enums.ConstrType.CONSTR_UNIQUE)
CODE = (ast.CreateFunctionStmt, ast.CreateTrigStmt, ast.DoStmt, ast.RuleStmt, ast.CreateSeqStmt, ast.AlterSeqStmt)
# What a node cannot work out by itself unless everything of a group is there.
WHOLE = {"mode", "array_agg", "string_agg", "jsonb_agg", "json_agg", "jsonb_object_agg", "json_object_agg"}
# Among others: what PostgreSQL calls STABLE.
DEPENDS_ON_SETTINGS = {"to_jsonb", "to_json", "to_char", "date_trunc", "age", "jsonb_build_array", "jsonb_build_object"}
LEFT, RIGHT = enums.JoinType.JOIN_LEFT, enums.JoinType.JOIN_RIGHT


def walk(node: Node, *, into: Callable[[Node], bool] = lambda _: True) -> Iterator[Node]:
    """A node and all below it; not below those that `into` is against."""
    if isinstance(node, tuple):
        for item in node:
            yield from walk(item, into=into)
    elif isinstance(node, ast.Node):
        yield node
        if into(node):
            for name in node:
                yield from walk(getattr(node, name), into=into)


def distributed(node: Node) -> set[str]:
    """The distributed tables that are read anywhere in a node."""
    return {part.relname for part in walk(node) if isinstance(part, ast.RangeVar)} & set(DISTRIBUTED)


def columns_of(tables: set[str]) -> set[str]:
    return {DISTRIBUTED[table] for table in tables}


def names(node: Node) -> set[str]:
    found = [part.fields[-1] for part in walk(node) if isinstance(part, ast.ColumnRef)]
    return {field.sval for field in found if isinstance(field, ast.String)}


def function(call: ast.FuncCall) -> str:
    return str(call.funcname[-1].sval)


def table_elements(statement: Node) -> Iterator[tuple[str, Node, str]]:
    """Table, element, and for a constraint on a column that column's name, of what makes or alters a table."""
    if isinstance(statement, ast.CreateStmt):
        elements = statement.tableElts or ()
    elif isinstance(statement, ast.AlterTableStmt):
        elements = tuple(command.def_ for command in statement.cmds if isinstance(command.def_, ast.Node))
    else:
        return
    for element in elements:
        yield statement.relation.relname, element, ""
        if isinstance(element, ast.ColumnDef):
            for constraint in element.constraints or ():
                yield statement.relation.relname, constraint, element.colname


def keys_hold_the_column(statement: Node) -> Iterator[str]:
    """Uniqueness can only be kept within a node, so every key of a distributed table holds its column."""
    for table, element, column in table_elements(statement):
        if table in DISTRIBUTED and isinstance(element, ast.Constraint) and element.contype in KEYS:
            held = {column, *(key.sval for key in element.keys or ())}
            if DISTRIBUTED[table] not in held:
                yield f"a key of {table} without {DISTRIBUTED[table]}"
    if isinstance(statement, ast.IndexStmt) and statement.unique:
        needed = DISTRIBUTED.get(statement.relation.relname)
        if needed not in {None, *(part.name for part in statement.indexParams)}:
            yield f"a unique index of {statement.relation.relname} without {needed}"


def nothing_counts_up(statement: Node) -> Iterator[str]:
    """A sequence is one place that all nodes would have to ask."""
    for _, element, _ in table_elements(statement):
        if isinstance(element, ast.ColumnDef) and element.typeName.names[-1].sval in SERIAL:
            yield "a serial column"
        if isinstance(element, ast.Constraint) and element.contype == enums.ConstrType.CONSTR_IDENTITY:
            yield "an identity column"
    if any(isinstance(part, ast.FuncCall) and function(part) == "nextval" for part in walk(statement)):
        yield "nextval"


def no_code_in_the_server(statement: Node) -> Iterator[str]:
    """Triggers, functions and blocks would have to be on every node."""
    if isinstance(statement, CODE):
        yield type(statement).__name__


def no_foreign_keys(statement: Node) -> Iterator[str]:
    """What is referred to may be on another node."""
    for _, element, _ in table_elements(statement):
        if isinstance(element, ast.Constraint) and element.contype == enums.ConstrType.CONSTR_FOREIGN:
            yield "a foreign key"


def conflicts_are_left(statement: Node) -> Iterator[str]:
    """ON CONFLICT DO NOTHING, and nothing cleverer."""
    for part in walk(statement):
        if isinstance(part, ast.OnConflictClause) and part.action != enums.OnConflictAction.ONCONFLICT_NOTHING:
            yield "ON CONFLICT DO UPDATE"


def groups_stay_together(statement: Node) -> Iterator[str]:
    """Percentiles, arrays and distinct counts of distributed rows are taken per value of the column."""
    for select in walk(statement):
        if not isinstance(select, ast.SelectStmt):
            continue
        missing = columns_of(distributed(select.fromClause)) - names(select.groupClause)
        calls = [part for part in walk(select.targetList) if isinstance(part, ast.FuncCall)]
        for call in calls:
            whole = call.agg_within_group or call.agg_distinct or function(call) in WHOLE
            if whole and missing:
                yield f"{function(call)} not grouped by {', '.join(missing)}"
            if call.over is not None and columns_of(distributed(select.fromClause)) - names(call.over.partitionClause):
                yield f"a window of {function(call)} across nodes"


def joins_meet_on_a_node(statement: Node) -> Iterator[str]:
    """Distributed tables are joined by their common column, and none is the optional side of a table that is not."""
    for part in walk(statement):
        if isinstance(part, ast.SelectStmt) and len([item for item in part.fromClause or () if distributed(item)]) > 1:
            yield "distributed tables beside each other without a join"
        if not isinstance(part, ast.JoinExpr):
            continue
        left, right = columns_of(distributed(part.larg)), columns_of(distributed(part.rarg))
        if left and right:
            by = {key.sval for key in part.usingClause or ()} | names(part.quals)
            if left != right or not left <= by:
                yield "distributed tables joined by something else than their common column"
        elif (right and part.jointype == LEFT) or (left and part.jointype == RIGHT):
            yield "a distributed table as the optional side of an outer join"


def writes_stay_in_place(statement: Node) -> Iterator[str]:
    """Rows never move to another node, say where they belong, and copies are not written from what is spread."""
    if not isinstance(statement, (ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt)):
        return
    table = statement.relation.relname
    column = DISTRIBUTED.get(table)
    named = {part.name for name in ("cols", "targetList") for part in getattr(statement, name, None) or ()}
    if column and isinstance(statement, ast.InsertStmt) and column not in named:
        yield "an insert that does not say where it belongs"
    if isinstance(statement, ast.UpdateStmt) and column in named:
        yield "an update of the distribution column"
    read = distributed(tuple(getattr(statement, name) for name in statement if name != "relation"))
    if table in REFERENCE and read:
        yield f"{table} is written from {', '.join(read)}"


def rows_are_not_held(statement: Node) -> Iterator[str]:
    """FOR UPDATE cannot hold rows of many nodes."""
    for part in walk(statement):
        if isinstance(part, ast.SelectStmt) and part.lockingClause and distributed(part):
            yield "FOR UPDATE of distributed rows"


def something_is_selected(statement: Node) -> Iterator[str]:
    """A SELECT without columns cannot be sent to a node, and EXISTS would bring every row to the coordinator."""
    for part in walk(statement):
        if isinstance(part, ast.SelectStmt) and not part.targetList and not part.valuesLists and not part.larg:
            yield "a SELECT without columns"
        if isinstance(part, ast.SubLink) and part.subLinkType == enums.SubLinkType.EXISTS_SUBLINK and distributed(part):
            yield "EXISTS of distributed rows"


def changes_are_stable(statement: Node) -> Iterator[str]:
    """Functions whose result depends on settings, such as the time zone, are not called with columns in a change."""
    if not isinstance(statement, (ast.UpdateStmt, ast.DeleteStmt)):
        return
    for part in walk(statement):
        if isinstance(part, ast.A_Expr) and names(part) and any(map(is_interval, (part.lexpr, part.rexpr))):
            yield "an interval and a column in a change"
        if isinstance(part, ast.FuncCall) and function(part) in DEPENDS_ON_SETTINGS and names(part):
            yield f"{function(part)} of a column in a change"


def is_interval(node: Node) -> bool:
    return isinstance(node, ast.TypeCast) and node.typeName.names[-1].sval == "interval"


RULES: tuple[Rule, ...] = (
    keys_hold_the_column,
    nothing_counts_up,
    no_code_in_the_server,
    no_foreign_keys,
    conflicts_are_left,
    groups_stay_together,
    joins_meet_on_a_node,
    writes_stay_in_place,
    rows_are_not_held,
    something_is_selected,
    changes_are_stable,
)


def breaches(text: str) -> list[str]:
    """Yield the violations of Citus's rules in a statement."""
    return [breach for statement in statements(text) for rule in RULES for breach in rule(statement)]


def statements(text: str) -> list[Node]:
    return [raw.stmt for raw in pglast.parse_sql(plain(text))]


def plain(text: str) -> str:
    """A statement as the server gets it: numbered parameters, and something in place of what is in braces."""
    numbered: dict[str, int] = {}
    without = re.sub(r"%\((\w+)\)[sbt]", lambda name: f"${numbered.setdefault(name[1], len(numbered) + 1)}", text)
    return re.sub(r"\{\w+\}", "stand_in", without)


@cache
def migrations(direction: str = "upgrade") -> Mapping[str, tuple[str, ...]]:
    """Revision → everything that its upgrade, or its downgrade, executes."""
    found = {}
    for module_name in sorted(module.name for module in iter_modules(versions.__path__)):
        module, texts = import_module(f"{versions.__name__}.{module_name}"), list[str]()
        with patch.object(op, "execute", texts.append):
            getattr(module, direction)()
        found[module.revision] = tuple(texts)
    return found


@pytest.mark.parametrize("name", pool.texts())
def test_every_statement_is_portable(name: str) -> None:
    """Every statement of the collector works on one server and on many nodes."""
    assert breaches(pool.texts()[name]) == []


@pytest.mark.parametrize("revision", migrations())
def test_every_migration_is_portable(revision: str) -> None:
    """What a revision makes can be distributed, and what one does to the rows works where they are distributed."""
    assert breaches(";".join(migrations()[revision])) == []


@pytest.mark.parametrize("direction", ["upgrade", "downgrade"])
def test_a_migration_sends_one_statement_at_a_time(direction: str) -> None:
    """Distributed tables refuse several statements at once."""
    several = {
        revision
        for revision, texts in migrations(direction).items()
        for text in texts
        if len(pglast.parse_sql(text)) != 1
    }
    assert several == set()


def test_each_table_has_its_place() -> None:
    """Each table that a revision makes has its place in the cluster: divided among the nodes, or whole on each."""
    executed = [one for texts in migrations().values() for one in statements(";".join(texts))]
    made = {statement.relation.relname for statement in executed if isinstance(statement, ast.CreateStmt)}
    assert made == set(DISTRIBUTED) | set(REFERENCE)
    assert not set(DISTRIBUTED) & set(REFERENCE)


def test_a_copy_is_small() -> None:
    """No more than ten thousand rows go into one COPY, which Citus splits up by node in memory."""
    assert batches.MAX_ROWS <= 10_000


@pytest.mark.parametrize(
    ("text", "breach"),
    [
        ("CREATE TABLE summary (target_id bigint, region text PRIMARY KEY)", "a key of summary without target_id"),
        ("CREATE TABLE sample (target_id bigint, idx int, UNIQUE (idx))", "a key of sample without target_id"),
        ("ALTER TABLE ingest_batch ADD PRIMARY KEY (epoch, seq)", "a key of ingest_batch without vantage_id"),
        ("CREATE UNIQUE INDEX i ON sample (round_at)", "a unique index of sample without target_id"),
        ("CREATE TABLE t (id bigserial)", "a serial column"),
        ("CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY)", "an identity column"),
        ("CREATE TABLE t (id bigint DEFAULT nextval('s'))", "nextval"),
        ("INSERT INTO plan (version) SELECT nextval('s')", "nextval"),
        ("CREATE SEQUENCE s", "CreateSeqStmt"),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$", "CreateFunctionStmt"),
        ("CREATE TRIGGER t AFTER INSERT ON sample EXECUTE FUNCTION f()", "CreateTrigStmt"),
        ("DO $$ BEGIN NULL; END $$", "DoStmt"),
        ("CREATE TABLE t (id bigint REFERENCES target (id))", "a foreign key"),
        ("ALTER TABLE sample ADD FOREIGN KEY (vantage_id) REFERENCES vantage (id)", "a foreign key"),
        (
            "INSERT INTO plan (version) VALUES (1) ON CONFLICT (version) DO UPDATE SET version = 2",
            "ON CONFLICT DO UPDATE",
        ),
        (
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ttft_us) FROM sample GROUP BY region",
            "percentile_cont not grouped by target_id",
        ),
        (
            "SELECT max(m) FROM (SELECT array_agg(x) AS m FROM (SELECT ttft_us AS x FROM sample) AS s) AS t",
            "array_agg not grouped by target_id",
        ),
        ("SELECT count(DISTINCT seq) FROM ingest_batch GROUP BY epoch", "count not grouped by vantage_id"),
        ("SELECT lag(round_at) OVER (ORDER BY round_at) FROM sample", "a window of lag across nodes"),
        ("SELECT 1 FROM sample, summary", "distributed tables beside each other without a join"),
        (
            "SELECT 1 FROM sample JOIN summary USING (region)",
            "distributed tables joined by something else than their common column",
        ),
        (
            "SELECT 1 FROM sample JOIN ingest_batch USING (vantage_id)",
            "distributed tables joined by something else than their common column",
        ),
        (
            "SELECT 1 FROM vantage LEFT JOIN LATERAL (SELECT sum(stored) FROM ingest_batch) AS l ON true",
            "a distributed table as the optional side of an outer join",
        ),
        ("INSERT INTO sample (round_at) VALUES (now())", "an insert that does not say where it belongs"),
        ("UPDATE sample SET target_id = 1", "an update of the distribution column"),
        (
            "UPDATE vantage SET stored = 1 FROM ingest_batch AS b WHERE b.seq = 1",
            "vantage is written from ingest_batch",
        ),
        ("SELECT 1 FROM sample WHERE target_id = 1 FOR UPDATE", "FOR UPDATE of distributed rows"),
        ("SELECT count(*) FROM (SELECT FROM sample LIMIT 5) AS found", "a SELECT without columns"),
        ("SELECT EXISTS (SELECT 1 FROM sample)", "EXISTS of distributed rows"),
        (
            "UPDATE vantage SET stored = 1 WHERE last_seen_at > joined_at - interval '1 hour'",
            "an interval and a column in a change",
        ),
        ("DELETE FROM vantage WHERE $1 @> to_jsonb(epoch)", "to_jsonb of a column in a change"),
    ],
)
def test_each_rule_can_be_broken(text: str, breach: str) -> None:
    """A statement that breaks a rule is found, and for that rule alone."""
    assert breaches(text) == [breach]


def test_what_keeps_to_the_rules_passes() -> None:
    """The ways that the rules leave open are open."""
    for text in (
        "SELECT target_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM sample GROUP BY target_id, region",
        "SELECT 1 FROM sample JOIN summary USING (target_id, region) JOIN vantage ON vantage.id = vantage_id",
        "SELECT 1 FROM sample LEFT JOIN vantage ON vantage.id = sample.vantage_id",
        "INSERT INTO summary (target_id) SELECT * FROM unnest($1::bigint[]) ON CONFLICT DO NOTHING",
        "SELECT version FROM plan FOR UPDATE",
        "UPDATE vantage SET stored = 1 WHERE last_seen_at > $1::timestamptz - interval '1 hour'",
    ):
        assert breaches(text) == []
