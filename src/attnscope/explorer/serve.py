"""Starts the explorer: opens a port, reports the address, and serves until it is stopped."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import uvicorn

from attnscope.errors import AttnscopeError, Parameter
from attnscope.explorer.app import make_app
from attnscope.explorer.guard import Guard
from attnscope.explorer.live import TrialQueue
from attnscope.explorer.runs import ServedRuns

LOOPBACK = "127.0.0.1"
PORT = 8765
MANIFEST = "manifest.json"


def serve(
    paths: Sequence[Path],
    *,
    host: str = LOOPBACK,
    port: int | None = None,
    live: str | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve runs until stopped. live: the model that measures prompts typed in the browser. ready: gets the address,
    which contains a token if other machines can reach it.
    """
    runs = ServedRuns([run for path in paths for run in runs_in(path)])
    if live is not None:
        from attnscope.models.sources import find_source

        find_source(live)
    listening = _socket(host, port)
    number = listening.getsockname()[1]
    loopback = _is_loopback(host)
    token = None if loopback else secrets.token_urlsafe(24)
    trials = None if live is None else TrialQueue(live, runs)
    app = Guard(make_app(runs, trials), hosts_of(host, number), token, number)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, date_header=False)
    server = uvicorn.Server(config)
    shown = f"[{host}]" if ":" in host else host
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else shown  # noqa: S104
    ready(f"http://{shown}:{number}/{f'?token={token}' if token else ''}")
    runs.ready.clear()
    threading.Thread(target=_warm_up, args=(runs,), daemon=True).start()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up when asked to stop
    try:
        server.run(sockets=[listening])
    finally:
        if trials is not None:
            trials.close()


def _warm_up(runs: ServedRuns) -> None:
    """Load what the first click would have to wait for."""
    try:
        if find_spec("pandas"):  # not needed, but altair and pyarrow use it if it is installed
            import_module("pandas")
        import_module("scipy.stats")
        for page in ("figure", "head", "compare", "prompt", "search"):
            import_module(f"attnscope.explorer.views.{page}")
        preload = import_module("attnscope.explorer.views.overview").preload
    finally:
        runs.ready.set()
    import_module("attnscope.figures.library").chart_library()
    for name in runs.names:
        with contextlib.suppress(Exception):  # whatever it is, the page will show it
            preload(runs.open(name))


def runs_in(path: Path) -> list[Path]:
    """The run in a folder, or the runs in its subfolders."""
    if (path / MANIFEST).is_file():
        return [path]
    runs = sorted(each.parent for each in path.glob(f"*/{MANIFEST}")) if path.is_dir() else []
    if not runs:
        raise AttnscopeError(
            "there is no run here",
            where=str(path),
            allowed="a folder written by 'attnscope run', or a folder of such folders",
            todo="run a study first",
        )
    return runs


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_of(host: str, port: int) -> frozenset[str]:
    """Allowed Host headers: this address, under each of its names."""
    names = {host, "127.0.0.1", "localhost", "[::1]"} if _is_loopback(host) else {host}
    if host in ("0.0.0.0", "::"):  # noqa: S104
        names |= {"127.0.0.1", "localhost", socket.gethostname().lower(), *_addresses()}
    shown = {f"[{name}]" if ":" in name and not name.startswith("[") else name for name in names}
    hosts = {f"{name.lower()}:{port}" for name in shown}
    return frozenset(hosts | ({name.lower() for name in shown} if port == 80 else set()))  # browsers leave 80 out


def _addresses() -> set[str]:
    try:
        return {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


def _socket(host: str, port: int | None) -> socket.socket:
    """A socket on the given port; without one, on the usual port or any free one."""
    wanted = [PORT, 0] if port is None else [port]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem: OSError | None = None
    for number in wanted:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(128)
        except (OSError, OverflowError) as error:
            listening.close()
            problem = error if isinstance(error, OSError) else OSError(f"{error}")
        else:
            return listening
    assert problem is not None  # noqa: S101
    raise AttnscopeError(
        f"can't listen there: {problem.strerror or problem}",
        where=f"{host}:{wanted[0]}",
        allowed="an address of this machine and a free port",
        todo=("choose another with ", Parameter("port"), ", or leave it out"),
    ) from problem
