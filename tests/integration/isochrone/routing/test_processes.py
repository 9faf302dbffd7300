"""`Routes` in their process: forks, threads, files, clocks and settings."""

import logging
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import isochrone.routing.routes
from fixtures.routing_client import PATIENCE, REGION, World, ask, client_of
from isochrone.routing import Routes, table_file
from testdata.waiting import eventually

CHILD_S = 20


def in_child(is_right: Callable[[], bool]) -> int:
    """Run a function in a forked process; return its exit code, 0 if the function returns true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the parent has threads
        child = os.fork()
    if child == 0:
        signal.alarm(CHILD_S)
        os._exit(0 if is_right() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_routes(world: World) -> None:
    """Each forked worker has routes with its own thread, and closes no others than these."""
    world.first_then("none", "crlf")
    routes = world.routes()
    client = client_of(routes)
    assert ask(client) == "fault-none"

    def works_and_ends() -> bool:
        answered = ask(client)
        routes.close()
        return answered == "fault-none"

    assert in_child(works_and_ends) == 0
    world.first_then("crlf", "none")
    eventually(PATIENCE, lambda: ask(client) == "fault-crlf", "the next table, over the parent's stream")
    assert len([one for one in world.server.requests if one["path"].endswith("/watch")]) == 2


def test_a_route_that_leaves_the_plan_is_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that the plan no longer has is unknown once its table is stale, also in the cache; others stay."""
    monkeypatch.setattr(isochrone.routing.routes, "_LOOK_AGAIN_S", 0.05)
    for route in ("voice", "chat"):
        world.publish(world.entry("none", weight=1.0), seconds=-1, route=route)
    routes = world.routes()
    looks = len(world.server.overviews)
    eventually(
        PATIENCE, lambda: bool(routes.pick("chat")) and len(world.server.overviews) > looks + 1, "two more looks"
    )
    world.server.planned = ("voice",)
    eventually(PATIENCE, lambda: routes.table("chat") is None, "the route is forgotten")
    voice = routes.pick("voice")
    assert voice is not None
    assert voice.is_static
    (kept,) = world.cache.glob("tables-*.json")
    eventually(PATIENCE, lambda: [one.route for one in table_file.load(kept)[0].values()] == ["voice"], "the file")


def test_a_fork_while_a_thread_is_busy(world: World) -> None:
    """A fork waits for the thread that changes the routes, whose lock the child could never get."""
    world.first_then("none", "crlf")
    routes = world.routes()
    is_held = threading.Event()

    def hold() -> None:
        with routes._lock:
            is_held.set()
            time.sleep(0.5)

    with ThreadPoolExecutor() as threads:
        holding = threads.submit(hold)
        is_held.wait()
        assert in_child(lambda: routes.pick("chat") is not None) == 0
        holding.result()


def test_forked_workers_move_at_different_times(world: World) -> None:
    """A worker draws its own share of `move_within_us`."""
    routes = world.routes()
    share = routes._tables.share
    assert in_child(lambda: routes._tables.share != share) == 0
    assert routes._tables.share == share


@pytest.mark.parametrize("url", ["127.0.0.1:4680", "isochrone.example", "grpc://x:1", "http://", ""])
def test_an_address_that_is_none(url: str) -> None:
    """It is refused at once, with an example: a thread in the background could only be silent."""
    with pytest.raises(ValueError, match=r"use one like https://isochrone\.example:4680"):
        Routes(url, REGION)


def test_a_user_without_a_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no home, as for the numeric user of a container, tables are not kept."""

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    world.first_then("none", "crlf")
    with Routes(world.server.url, REGION, send_callers_key=True) as routes:
        assert ask(client_of(routes)) == "fault-none"
        assert routes.counters["cache_failed"] == 1


def test_two_routes_on_one_file(world: World) -> None:
    """Services that share a folder write whole files, and each can be read."""
    world.first_then("none", "crlf")
    opened = [world.routes() for _ in range(4)]
    for _ in range(10):
        world.first_then("none", "crlf")
    eventually(PATIENCE, lambda: {world.newest(one) for one in opened} == {11}, "the last table")
    for one in opened:
        one.close()
    assert [path.name[:7] for path in world.cache.iterdir()] == ["tables-"]
    world.server.stop()
    assert ask(client_of(world.routes())) == "fault-none"


def test_a_refusal_and_garbage_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason of the collector, once, and what it sent instead of a table."""
    caplog.set_level(logging.WARNING, logger="isochrone.routing")
    world.first_then("none", "crlf")
    routes = world.routes()
    world.server.publish_line(b"garbage")
    eventually(PATIENCE, lambda: routes.counters["tables_ignored"] == 1, "the garbage")
    assert "ignored what" in caplog.text
    assert "not JSON" in caplog.text
    caplog.clear()
    world.server.refusal = "unknown client region 'mars'; known: us-east-2"
    elsewhere = Routes(world.server.url, "mars", cache_folder=world.cache)
    world.opened.append(elsewhere)
    assert not elsewhere.wait(0.1)
    eventually(PATIENCE, lambda: elsewhere.counters["refused"] >= 2, "two refusals")
    assert [one.getMessage().count("unknown client region 'mars'") for one in caplog.records] == [1]


def test_routing_needs_no_grpc() -> None:
    """The client imports neither gRPC nor protocol buffers, which take a second to import."""
    program = (
        "import sys, isochrone.routing.httpx, isochrone.routing.httpx2\n"
        "print([name for name in ('grpc', 'google.protobuf', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_requests_do_not_wait_for_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the tables are written to a slow disk, requests over the same event loop are answered."""
    from isochrone.routing import table_file

    is_writing, may_end = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        is_writing.set()
        may_end.wait(CHILD_S)

    monkeypatch.setattr(table_file, "save", slow)
    world.first_then("none", "crlf")
    client = client_of(world.routes())
    assert is_writing.wait(CHILD_S)
    assert ask(client) == "fault-none"
    may_end.set()
