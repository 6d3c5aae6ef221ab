"""Fetch one checkpoint, whole or not at all.

Files arrive in the checkpoint's own directory, each verified before it gets its name; the manifest, written last, is
what makes the directory count. A fetch that was stopped anywhere goes on where it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from qwenlab.remote.checkpoint import manifest, offline
from qwenlab.remote.checkpoint.download import Download, Patience, passing
from qwenlab.remote.checkpoint.files import Digests, FileEntry
from qwenlab.remote.checkpoint.job import Job
from qwenlab.remote.checkpoint.listing import (
    Listing,
    check_format,
    free_space_problem,
    from_hub,
    from_peer,
    place_of,
    without_weights,
)
from qwenlab.remote.checkpoint.manifest import Journal, Manifest
from qwenlab.remote.checkpoint.refusals import causes
from qwenlab.remote.checkpoint.status import Status
from qwenlab.remote.checkpoint.transport import Ranges, Transport, XetFirst
from qwenlab.remote.checkpoint.words import FetchError, explain

FILES_AT_ONCE = 4
VANISHED = (
    "the peer at {peer} does not answer: is it up, and does a firewall let this host reach its qwen_peer_port? "
    "Deploy again (any host that has the checkpoint serves it; what is fetched is kept) or set qwen_model_source = "
    "'hub'."
)


def main(arguments: list[str] | None = None) -> int:
    """`fetch_checkpoint.py JOB`: the job is a JSON file, removed as soon as it is read, for it may hold a token."""
    (path,) = sys.argv[1:] if arguments is None else arguments
    text = Path(path).read_text()
    Path(path).unlink()
    job = Job(**json.loads(text))
    os.environ.update(job.environment)
    os.environ["HF_ENDPOINT"] = job.endpoint
    status = Status(Path(job.status), job.deploy)
    try:
        with lock(Path(job.directory), status):
            message = run(job, status)
    except Exception as error:
        words = (
            VANISHED.format(peer=job.endpoint)
            if job.source == "peer" and any(passing(one) for one in causes(error))
            else explain(error, job)
        )
        message = f"{job.repo}@{job.revision[:12]} was not fetched: {words}"
        print(message, file=sys.stderr)
        status.end("failed", message)
        return 1
    status.end("done", message)
    return 0


@contextmanager
def lock(directory: Path, status: Status) -> Iterator[None]:
    """One fetch of a checkpoint at a time; a second waits for the first and says so."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            status.say("waiting", "another deploy fetches this checkpoint on this host; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(job: Job, status: Status) -> str:
    """Fetch, and prepare where the job says so; returns what was done in words."""
    directory = Path(job.directory)
    known = manifest.read(directory)
    wrong = list(manifest.wrong_files(directory, known.files, digests=job.verify == "digest")) if known else []
    if known is not None and not wrong:
        message = f"{job.repo}@{known.revision[:12]} is whole"
    else:
        if known is not None:
            reopen(directory.resolve(), known, wrong)
            status.say("repairing", ", ".join(entry.path for entry in wrong))
        message = Fetch(job, status, known).run()
    if job.prepare is not None:
        # numpy is needed by this alone
        from qwenlab.preparation.prepare import prepare

        message = prepare(directory.resolve(), Path(job.prepare["directory"]), job.prepare["recipe"], status)
    return message


def reopen(directory: Path, known: Manifest, wrong: list[FileEntry]) -> None:
    """Make a checkpoint with damaged files an unfinished one that lacks just those."""
    journal = Journal(directory)
    for entry in known.files:
        if entry in wrong:
            with suppress(FileNotFoundError):
                place_of(directory, entry).unlink()
        elif entry.sha256 is not None:
            journal.note(entry, entry.sha256)
    manifest.withdraw(directory)


class Fetch:
    """One fetch. `known` is the manifest of a checkpoint that lacks files; then nobody is asked for a listing."""

    def __init__(self, job: Job, status: Status, known: Manifest | None) -> None:
        self.job, self.status, self.known = job, status, known
        self.patience = Patience(job.attempts, job.backoff_s)
        self.models = Path(job.models)
        self.stop = threading.Event()
        self.origin = job.endpoint

    def run(self) -> str:
        """Fetch what is missing, write the manifest; returns words."""
        job = self.job
        self.status.say("listing", f"{job.repo}@{job.revision[:12]} from {job.place or job.endpoint}")
        if job.source == "path":
            listing, get = self._offline()
        else:
            listing = self._listing()
            get = self._downloader(listing)
        if not job.weights:
            listing = without_weights(listing)
        # a branch is resolved once: its commit gets the directory, and the branch's name becomes a link to it
        for entry in listing.files:
            place_of(Path(job.directory), entry)
        named = Path(job.directory)
        directory = named if listing.commit == job.revision else named.with_name(listing.commit)
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(directory)
        verified = self._already(listing)
        missing = [entry for entry in listing.files if entry.path not in verified]
        self._check_space(missing, listing)
        for entry in missing[:1]:
            verified[entry.path] = get(entry)
        check_format(directory / "config.json", job.format, job.repo)
        verified |= self._all(missing[1:], get)
        files = tuple(
            FileEntry(entry.path, entry.size, verified[entry.path], entry.git_blob) for entry in listing.files
        )
        manifest.write(directory, Manifest(job.repo, listing.commit, files, self.origin))
        if directory != named:
            link(named, listing.commit)
        shutil.rmtree(self._unpacked, ignore_errors=True)
        return f"{job.repo}@{listing.commit[:12]} is whole: {len(missing)} of {len(files)} files fetched"

    @property
    def _unpacked(self) -> Path:
        return Path(f"{self.job.directory}.unpacked")

    def _listing(self) -> Listing:
        job = self.job
        if job.source == "peer":
            return from_peer(job)
        if self.known is not None:
            commit = self.known.revision
            return Listing(commit, self.known.files, f"{job.endpoint}/{job.repo}/resolve/{commit}")
        return from_hub(job, self.patience)

    def _downloader(self, listing: Listing) -> Callable[[FileEntry], str]:
        transport = self._transport(listing)

        def get(entry: FileEntry) -> str:
            download = Download(
                transport=transport,
                target=place_of(self.directory, entry),
                entry=entry,
                count=self.status.add,
                patience=self.patience,
                stop=self.stop,
            )
            return self._note(entry, download.run())

        return get

    def _transport(self, listing: Listing) -> Transport:
        job = self.job
        if job.source == "peer":
            return Ranges(listing.url, None)
        plain = Ranges(listing.url, job.token)
        if job.fetcher == "ranges":
            return plain
        return XetFirst(plain, listing.url, job.endpoint, job.token, job.xet_buffer, self.status.note)

    def _offline(self) -> tuple[Listing, Callable[[FileEntry], str]]:
        job = self.job
        place = Path(job.place or "")
        try:
            if not place.exists():
                raise FetchError(f"{place} (qwen_model_path) does not exist on this host: is the disk mounted?")
            if place.is_file():
                self.status.say("unpacking", str(place))
            source = offline.find_directory(
                place if place.is_dir() else offline.unpack(place, self._unpacked), job.repo, job.revision
            )
            entries, how = offline.entries_of(source, job.repo, job.revision)
        except PermissionError as error:
            raise FetchError(f"{error.filename} (qwen_model_path) is not readable for the service user.") from error
        self.origin = f"{place} ({how})"

        def get(entry: FileEntry) -> str:
            try:
                return self._note(
                    entry, offline.copy(source / entry.path, place_of(self.directory, entry), entry, self.status.add)
                )
            except FileNotFoundError as error:
                raise FetchError(f"{source} lacks {entry.path}: copy it anew.") from error

        return Listing(job.revision, entries, ""), get

    def _already(self, listing: Listing) -> dict[str, str]:
        """SHA-256 of the files that lie here verified, linked from other checkpoints where those have them."""
        self.status.expect(sum(entry.size for entry in listing.files))
        found = {}
        for entry in listing.files:
            sha256 = self.journal.sha256(entry)
            if sha256 is None and (digests := offline.link_twin(self.models, self.directory, entry)):
                sha256 = self._note(entry, digests)
            if sha256 is not None:
                found[entry.path] = sha256
                self.status.add(entry.size)
        return found

    def _check_space(self, missing: list[FileEntry], listing: Listing) -> None:
        here = 0
        for entry in missing:
            with suppress(OSError):
                here += (self.directory / f"{entry.path}.incomplete").stat().st_size
        free = shutil.disk_usage(self.directory).free
        problem = free_space_problem(sum(entry.size for entry in missing) - here, free, self.models)
        if problem is not None:
            raise FetchError(problem)

    def _all(self, missing: list[FileEntry], get: Callable[[FileEntry], str]) -> dict[str, str]:
        """Get several files at once; the first that fails for good ends the others."""
        self.status.say("fetching", f"{len(missing)} files")
        first: list[BaseException] = []

        def guarded(entry: FileEntry) -> str | None:
            if self.stop.is_set():
                return None
            try:
                return get(entry)
            except BaseException as error:
                if not self.stop.is_set():
                    first.append(error)
                self.stop.set()
                return None

        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            results = list(pool.map(guarded, missing))
        if first:
            raise first[0]
        return {entry.path: sha256 for entry, sha256 in zip(missing, results, strict=True) if sha256 is not None}

    def _note(self, entry: FileEntry, digests: Digests) -> str:
        self.journal.note(entry, digests.sha256)
        return digests.sha256


def link(named: Path, commit: str) -> None:
    """Let a branch's name point to the commit that it was resolved to."""
    fresh = named.with_name(f".{named.name}.new")
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(commit)
    fresh.replace(named)
