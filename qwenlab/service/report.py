"""How a host serves, for people and for monitoring: from what status.py says to lines, JSON and a verdict. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from qwenlab.service.diagnosis import Finding, diagnose

# words of an engine's status line that hold only while it starts or runs: systemd keeps them when it has stopped
_LIVE_WORDS = ("answering on", "loading", "loaded;", "not generating", "waiting:")


@dataclass(frozen=True)
class Service:
    """A service beside the engines that is asked for.

    Attributes:
        name: what it is, for people.
        unit: its full name.
        state: systemd's ActiveState, or `absent`.
        result: how it ended last, in systemd's word.
    """

    name: str
    unit: str
    state: str
    result: str = "success"

    @property
    def ok(self) -> bool:
        """Whether it runs."""
        return self.state in ("active", "reloading")

    @property
    def words(self) -> str:
        """For a person: how it stands, and what to do when it is down."""
        if self.ok:
            return self.state
        if self.state == "absent":
            return "asked for and not there: deploy"
        why = "" if self.result == "success" else f" ({self.result})"
        told = f"systemctl status {self.unit}; journalctl -u {self.unit}"
        return f"{self.state}{why}, though asked for; why: {told}; start it, or deploy"


@dataclass(frozen=True)
class Report:
    """One host.

    Attributes:
        status: what status.py said.
        drift: files that a deploy would change.
        wanted: engines that the plan on the control machine asks for.
        notes: what else a deploy would change, and what the owner should know, in sentences.
        services: the gateway and what belongs to monitoring, where asked for.
        serves: whether engines belong on this host at all; otherwise it is there for monitoring alone.
    """

    status: Mapping[str, Any]
    drift: Sequence[str]
    wanted: Sequence[str]
    notes: Sequence[str] = ()
    services: Sequence[Service] = ()
    serves: bool = True

    @property
    def engines(self) -> list[dict[str, Any]]:
        """The engines on the host."""
        return list(self.status.get("engines", []))

    @property
    def missing(self) -> list[str]:
        """Engines that are asked for and not there."""
        there = {engine["name"] for engine in self.engines}
        return [name for name in self.wanted if name not in there]

    @property
    def ok(self) -> bool:
        """Whether every engine serves, no verification failed, and every service asked for runs; drift alone does not
        wake anybody."""
        return self._engines_serve and all(service.ok for service in self.services)

    @property
    def _engines_serve(self) -> bool:
        if not self.serves:
            return True
        return (
            bool(self.engines)
            and not self.missing
            and all(
                engine["state"] == "active" and engine["verified"].get("ok") is not False for engine in self.engines
            )
        )

    def findings(self, engine: Mapping[str, Any]) -> list[Finding]:
        """What an engine's journal says, unless it serves without a restart."""
        calm = engine["state"] == "active" and not engine["restarts"]
        return [] if calm else diagnose(engine["journal"])

    def lines(self) -> list[str]:
        """For a person."""
        rows = [self._verdict]
        rows += [f"  engine {name} is asked for and not there: deploy" for name in self.missing]
        for engine in self.engines:
            rows.append(f"  engine {engine['name']}: {engine['state']}{_for(engine['up_s'])}{_says(engine)}")
            rows.append(
                f"    {_figure(engine['tokens_s'])} tok/s now, {_figure(engine['running'])} running, "
                f"{_figure(engine['waiting'])} waiting, KV {_share(engine['kv_use'])}, {engine['restarts']} restarts"
            )
            verified = engine["verified"]
            words = "never" if "ok" not in verified else "passed" if verified["ok"] else "FAILED"
            rows.append(f"    verified: {words} {verified.get('at', '')}".rstrip())
            when = "earlier, " if engine["state"] == "active" else ""
            rows += [f"    {when}{finding.code}: {finding.text}" for finding in self.findings(engine)]
        rows += [f"  {finding.code}: {finding.text} ({finding.line})" for finding in self.host_findings]
        rows += [f"  {service.name}: {service.words}" for service in self.services]
        for card in self.status.get("cards", []):
            rows.append(
                f"  card {card['uuid']} {card['name']}: {card['temperature.gpu']} C, {card['power.draw']} of "
                f"{card['power.limit']} W, {card['memory.used']} of {card['memory.total']} MiB"
            )
        rows += [f"  drift: {path} differs from what a deploy would put there" for path in self.drift]
        return [*rows, *(f"  {note}" for note in self.all_notes)]

    @property
    def _verdict(self) -> str:
        if not self.serves:
            return "for monitoring alone" if self.ok else "NOT RUNNING AS ASKED: for monitoring alone"
        release, driver = self.status.get("release"), self.status.get("driver")
        what = f"release {release}" if release else "nothing was deployed here yet, or its release is gone"
        what += f", driver {driver}" if driver else ""
        return f"{'serving' if self.ok else 'NOT SERVING AS ASKED'}: {what}"

    @property
    def host_findings(self) -> list[Finding]:
        """What the kernel said since the machine started: cards' errors, engines ended for memory."""
        return diagnose(self.status.get("kernel", []))

    @property
    def all_notes(self) -> list[str]:
        """`notes`, and what the host itself tells beside its engines."""
        found = list(self.notes)
        if self.engines and self.status.get("enabled") is False:
            found.append("drift: qwen.service is not enabled: after a reboot nothing would be started")
        problems = self.status.get("release_problems", [])
        found += [f"drift: no engine would be started again: {text}" for text in problems]
        failed = self.status.get("failed") or {}
        if failed:
            found.append(
                f"a deploy of release {failed.get('release')} failed at {failed.get('at')} ({failed.get('reason')}) "
                "and was rolled back; try the same again with --data qwen_retry_failed=True"
            )
        return found

    def as_json(self) -> str:
        """One line for programs; the journal stays out, what it means is in."""
        engines = [
            {
                **{key: value for key, value in engine.items() if key != "journal"},
                "findings": [_finding(one) for one in self.findings(engine)],
            }
            for engine in self.engines
        ]
        parts = {key: self.status.get(key) for key in ("release", "vllm", "driver", "enabled", "cards")}
        return json.dumps(
            {
                "ok": self.ok,
                "serves": self.serves,
                **parts,
                "engines": engines,
                "missing": self.missing,
                "services": [{**asdict(service), "ok": service.ok} for service in self.services],
                "drift": list(self.drift),
                "notes": self.all_notes,
                "findings": [_finding(one) for one in self.host_findings],
            }
        )


def _finding(one: Finding) -> dict[str, str]:
    return {"code": one.code, "text": one.text, "line": one.line}


def _says(engine: Mapping[str, Any]) -> str:
    live = engine["state"] in ("active", "activating", "reloading")
    words = str(engine["says"])
    return f"; {words}" if words and (live or not words.startswith(_LIVE_WORDS)) else ""


def _for(seconds: float | None) -> str:
    if seconds is None:
        return ""
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f" for {hours // 24} d {hours % 24} h" if hours >= 24 else f" for {hours} h {minutes} min"


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}"
