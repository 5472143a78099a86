"""Starts the explorer: takes a port, says where it is, and answers until it is stopped."""

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

from attnscope.errors import AttnscopeError
from attnscope.explorer.app import make_app
from attnscope.explorer.guard import Guard
from attnscope.explorer.live import Desk
from attnscope.explorer.runs import Shelf

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
    """Answer until stopped. ready is told the address, which holds a token if others can reach it."""
    shelf = Shelf([run for path in paths for run in runs_in(path)])
    if live is not None:
        from attnscope.models.sources import find_source

        find_source(live)
    taken = _socket(host, port)
    number = taken.getsockname()[1]
    loopback = _is_loopback(host)
    token = None if loopback else secrets.token_urlsafe(24)
    desk = None if live is None else Desk(live, shelf)
    app = Guard(make_app(shelf, desk), hosts_of(host, number), token, number)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, date_header=False)
    server = uvicorn.Server(config)
    shown = f"[{host}]" if ":" in host else host
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else shown  # noqa: S104
    ready(f"http://{shown}:{number}/{f'?token={token}' if token else ''}")
    shelf.ready.clear()
    threading.Thread(target=_warm_up, args=(shelf,), daemon=True).start()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # asked to end, it still tidies up
    try:
        server.run(sockets=[taken])
    finally:
        if desk is not None:
            desk.close()


def _warm_up(shelf: Shelf) -> None:
    """Load what the first click would wait for."""
    try:
        if find_spec("pandas"):  # not needed, but altair and pyarrow look at it where it is
            import_module("pandas")
        import_module("scipy.stats")
        views = import_module("attnscope.explorer.views")
    finally:
        shelf.ready.set()
    import_module("attnscope.figures.library").chart_library()
    for name in shelf.names:
        with contextlib.suppress(Exception):  # whatever it is, the page tells it
            views.look_ahead(shelf.open(name))


def runs_in(path: Path) -> list[Path]:
    """The run that a folder is, or the runs that it holds."""
    if (path / MANIFEST).is_file():
        return [path]
    found = sorted(each.parent for each in path.glob(f"*/{MANIFEST}")) if path.is_dir() else []
    if not found:
        raise AttnscopeError(
            "there is no run here",
            where=str(path),
            allowed="a folder that 'attnscope run' wrote or is writing, or one of such folders",
            todo="run a study first",
        )
    return found


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_of(host: str, port: int) -> frozenset[str]:
    """What the Host header may say: this very address, under the names it has."""
    names = {host, "127.0.0.1", "localhost", "[::1]"} if _is_loopback(host) else {host}
    if host in ("0.0.0.0", "::"):  # noqa: S104
        names |= {"127.0.0.1", "localhost", socket.gethostname().lower(), *_addresses()}
    shown = {f"[{name}]" if ":" in name and not name.startswith("[") else name for name in names}
    found = {f"{name.lower()}:{port}" for name in shown}
    return frozenset(found | ({name.lower() for name in shown} if port == 80 else set()))  # browsers leave 80 out


def _addresses() -> set[str]:
    try:
        return {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


def _socket(host: str, port: int | None) -> socket.socket:
    """A port that is free: the one asked for, or the usual one, or any."""
    wanted = [PORT, 0] if port is None else [port]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem: OSError | None = None
    for number in wanted:
        taken = socket.socket(family, socket.SOCK_STREAM)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, number))
            taken.listen(128)
        except (OSError, OverflowError) as error:
            taken.close()
            problem = error if isinstance(error, OSError) else OSError(f"{error}")
        else:
            return taken
    assert problem is not None  # noqa: S101
    raise AttnscopeError(
        f"can't listen there: {problem.strerror or problem}",
        where=f"{host}:{wanted[0]}",
        allowed="an address of this machine and a port that is free",
        todo="choose another with --port, or leave it out",
    ) from problem
