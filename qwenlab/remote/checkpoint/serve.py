"""Serve whole checkpoints of this host, read-only, to the other hosts of a deploy.

aiohttp does the serving (ranges, sendfile); here stands only who may ask and for what. It ends when the deploy stops
its unit, or by itself once nobody has asked for a while.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from qwenlab.remote.checkpoint import manifest

IDLE_S = 3600.0  # longer than the largest file takes on a slow link
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def main(arguments: list[str] | None = None) -> int:
    """`python -m qwenlab.remote.checkpoint.serve JOB`; the job: models, directories, address, port, allowed."""
    (path,) = sys.argv[1:] if arguments is None else arguments
    job: dict[str, Any] = json.loads(Path(path).read_text())
    asyncio.run(serve(job))
    return 0


def addresses(names: list[str]) -> frozenset[str]:
    """Addresses of names and addresses."""
    found = set()
    for name in names:
        found |= {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    return frozenset(found)


def application(models: Path, directories: list[str], allowed: frozenset[str]) -> web.Application:
    """The files of the manifests of `directories`, at `/<owner>/<name>/<revision>/<file>`, for `allowed` alone."""
    files: dict[str, Path] = {}
    for name in directories:
        directory = models / name
        known = manifest.read(directory)
        for entry in known.files if known else ():
            files[f"/{name}/{entry.path}"] = directory / entry.path

    @web.middleware
    async def guard(request: web.Request, handler: Answer) -> web.StreamResponse:
        request.app[ASKED][0] = asyncio.get_running_loop().time()
        if (request.remote or "").removeprefix("::ffff:") not in allowed:
            raise web.HTTPForbidden(text="only hosts of the deploy are served\n")
        return await handler(request)

    async def answer(request: web.Request) -> web.StreamResponse:
        path = files.get(request.path)
        if path is None:
            raise web.HTTPNotFound(text="not a file of a whole checkpoint\n")
        return web.FileResponse(path, chunk_size=1 << 20)

    app = web.Application(middlewares=[guard])
    app[ASKED] = [0.0]
    app.router.add_get("/{path:.*}", answer)
    return app


ASKED: web.AppKey[list[float]] = web.AppKey("asked", list)


async def serve(job: dict[str, Any]) -> None:
    """Serve until nobody has asked for `IDLE_S` seconds."""
    app = application(Path(job["models"]), job["directories"], addresses(job["allowed"]))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, job["address"] or None, job["port"], reuse_address=True).start()
    print(f"serving {', '.join(job['directories'])} on port {job['port']}", flush=True)
    loop = asyncio.get_running_loop()
    app[ASKED][0] = loop.time()
    while loop.time() - app[ASKED][0] < IDLE_S:
        await asyncio.sleep(5)
    await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
