"""Programs of this project as processes that start at once, because they are forked from one that has imported them.

The tests start hundreds of collectors, agents and commands, whose imports take up to a second of processor time each:
most of that of all integration tests. Here, a server imports all modules of a program when that is first needed, and
forks; one serves all programs, which share most of their libraries. The new process has its own arguments, environment,
working folder and standard streams, and is a child of the test's process like any other. It differs from `python -m` in
the command line that `ps` shows, and in what is already imported. Tests of the start itself, of imports and of the
command line use the real command. Modules of the tests are programs as well.

usage: preforked.py FD serves requests from the socket FD (by `Program`)
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr

_TESTS = Path(__file__).resolve().parents[1]
_PR_SET_CHILD_SUBREAPER = 36
_MAX_REQUEST_BYTES = 1 << 17
_MAX_ANSWER_BYTES = 16
_forking = threading.Lock()

Completed = subprocess.CompletedProcess[str]


class Program(subprocess.Popen[AnyStr]):
    """`python -m MODULE ARGUMENTS` with the options of `Popen` for streams, `cwd` and `env`."""

    def __init__(self, module: str, *arguments: str, **options: Any) -> None:
        self._request = {"module": module, "arguments": arguments}
        super().__init__([sys.executable, "-m", module, *arguments], **options)

    def _execute_child(self, *options: Any) -> None:
        """Fork instead of what `Popen` does; the options are those of CPython 3.11 and later, by position."""
        if sys.platform != "linux":
            super()._execute_child(*options)  # type: ignore[misc]  # unknown to the stubs
            return
        cwd, env, pipes = options[5], options[6], options[10:16]
        streams = [own if theirs == -1 else theirs for own, theirs in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = self._request | {"cwd": os.fspath(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        try:
            self.pid = _server().fork(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # as above


def run(module: str, *arguments: str, stdin: str = "", timeout: float = 60.0, **options: Any) -> Completed:
    """Run a program to completion and return its output as text. Raises `TimeoutExpired`, after which it is killed."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Program[str](module, *arguments, **pipes, text=True, **options) as process:
        try:
            output, errors = process.communicate(stdin, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


class _Server:
    """The process that forks the programs."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A test has this path from pytest, which child processes do not inherit.
        path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # The threads of a linear algebra library would not survive the fork.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path},
            )
        atexit.register(self._end)

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Return the id of a new child of this process."""
        with _forking:
            # The server forks twice, and the orphan becomes a child of its nearest ancestor that adopts orphans.
            _adopt_orphans(True)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
                return int(self._socket.recv(_MAX_ANSWER_BYTES))
            finally:
                _adopt_orphans(False)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def _adopt_orphans(adopted: bool) -> None:  # noqa: FBT001  # prctl has this flag
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopted), 0, 0, 0)


@cache
def _import_all(module: str) -> None:
    package = importlib.import_module(module)
    if not hasattr(package, "__path__"):
        # It is executed as `__main__`, with what it has imported.
        del sys.modules[module]
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{module}."):
        if not found.name.endswith("__main__"):
            # Some need what is not installed.
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)
    gc.collect()
    gc.freeze()


def _await_request(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return, in a new process, what that has to run, and its streams. Exits when there are no more requests."""
    while True:
        content, streams, *_ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 3)
        if not content:
            sys.exit()
        request = json.loads(content)
        _import_all(request["module"])
        reader, writer = os.pipe()
        middle = os.fork()
        if not middle:
            child = os.fork()
            if not child:
                os.close(reader)
                os.close(writer)
                return request, streams
            os.write(writer, str(child).encode())
            os._exit(0)
        os.waitpid(middle, 0)
        requests.send(os.read(reader, _MAX_ANSWER_BYTES))
        for one in (reader, writer, *streams):
            os.close(one)


def _use(streams: Sequence[int]) -> None:
    """Make the streams those of this process, with text layers as the interpreter makes them at its start."""
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
        os.close(stream)
    for own, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        before = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        layer = open(own, mode, buffering, before.encoding, before.errors, closefd=False)  # noqa: SIM115  # until the exit
        setattr(sys, name, layer)
        setattr(sys, f"__{name}__", layer)


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    # Like `python -m`, without the folder of this script.
    del sys.path[0]
    request, streams = _await_request(requests)
    requests.close()
    _use(streams)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path.insert(0, request["cwd"])
    sys.argv = [request["module"], *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
