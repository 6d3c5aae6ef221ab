"""What each operation would run on a host in a given state, command by command."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from qwenlab.engine.pins import pins
from qwenlab.engine.release import BuildStep, PythonChoice, choose_python, pinned_steps, release_id
from qwenlab.operations import engine, host, paths, service
from qwenlab.operations.paths import Directory
from qwenlab.render import RemoteFile
from qwenlab.settings import Settings, load
from tests.operations.fake import commands

REVISION = "0123456789abcdef0123456789abcdef01234567"
PYTHON = "python=/usr/bin/python3 3.11"


def settings(**more: Any) -> Settings:
    """Settings of a cpu host."""
    given = {
        "engine": "cpu",
        "cpu_checkpoint": "lab/tiny",
        "cpu_revision": REVISION,
        "generate_api_key": False,
        **more,
    }
    return load({f"qwen_{key}": value for key, value in given.items()})


def wanted(chosen: Settings) -> str:
    """The release of such a host with Debian 12's Python."""
    return release_id(chosen, PythonChoice("3.11", "/usr/bin/python3"), pinned_steps(chosen))


def state(*lines: str) -> dict[str, list[str]]:
    """Answer to the question for uv, Pythons and releases."""
    return {"releases/*/release.json": [PYTHON, *lines]}


FILE = {"/etc/qwen/x": RemoteFile("content\n", "640", "root", "qwen")}
DIGEST = sha256(b"content\n").hexdigest()


def test_a_missing_file_arrives_on_stdin_under_another_name() -> None:
    ((command, stdin),) = commands(paths.files, {}, files=FILE)
    assert stdin == "content\n"
    assert "content" not in command
    assert command == (
        "umask 077 && cat > /etc/qwen/x.new && chown root:qwen /etc/qwen/x.new && chmod 640 /etc/qwen/x.new"
        " && mv -f /etc/qwen/x.new /etc/qwen/x"
    )


@pytest.mark.parametrize(
    ("there", "writes"),
    [
        (f"path=file 640 root qwen {DIGEST} /etc/qwen/x", 0),
        (f"path=file 644 root qwen {DIGEST} /etc/qwen/x", 1),
        (f"path=file 640 root root {DIGEST} /etc/qwen/x", 1),
        (f"path=file 640 root qwen {'0' * 64} /etc/qwen/x", 1),
        ("path=directory 640 root qwen - /etc/qwen/x", 1),
    ],
)
def test_a_file_is_written_only_when_content_or_rights_differ(there: str, writes: int) -> None:
    assert len(commands(paths.files, {"sha256sum": there}, files=FILE)) == writes


def test_directories_get_owner_and_mode() -> None:
    made = {"/etc/qwen": Directory(), "/etc/qwen/secrets": Directory(mode="700")}
    answers = {"sha256sum": "path=directory 755 root root - /etc/qwen"}
    assert commands(paths.directories, answers, wanted=made) == [
        ("install -d -o root -g root -m 700 /etc/qwen/secrets", "")
    ]


UNIT_THERE = f"path=file 644 root root {DIGEST} /etc/systemd/system/qwen-engine@.service"


@pytest.mark.parametrize(("owner", "times"), [("UNKNOWN", 1), ("other", 1), ("qwen", 0), ("root", 0)])
def test_files_of_a_former_service_user_go_to_the_present_one(owner: str, times: int) -> None:
    answers = {"sha256sum": [f"path=directory 750 {owner} qwen - /var/lib/qwen", UNIT_THERE]}
    expected = (
        "! grep -qxF WorkingDirectory=/var/lib/qwen /etc/systemd/system/qwen-engine@.service || "
        "chown -Rh --from=$(stat -c %u /var/lib/qwen) qwen:qwen /var/lib/qwen /srv/qwen/models"
    )
    assert [line for line, _ in commands(host.hand_down, answers, settings=settings())] == [expected] * times


def test_a_home_that_no_engine_worked_in_keeps_its_files() -> None:
    answers = {"sha256sum": "path=directory 755 alice alice - /home/alice"}
    assert commands(host.hand_down, answers, settings=settings(home="/home/alice")) == []


def test_packages_that_are_missing_are_installed_and_the_index_is_renewed_only_then() -> None:
    there = {"dpkg -l": ["ii  gcc  4:12 amd64 x"]}
    assert commands(host.packages, there, names=("gcc",), lock_timeout_s=5) == []
    update, install = (line for line, _ in commands(host.packages, there, names=("gcc", "libnuma1"), lock_timeout_s=5))
    assert "DPkg::Lock::Timeout=5 update" in update
    assert "--force-confold libnuma1" in install
    assert " gcc" not in install


def test_certificates_are_trusted_once_they_changed() -> None:
    path = "/usr/local/share/ca-certificates/lab.crt"
    wanted_files = {path: RemoteFile("PEM\n")}
    lines = [line for line, _ in commands(host.certificates, {}, wanted=wanted_files)]
    assert lines[0].endswith(path)
    assert lines[1] == "update-ca-certificates"
    there = {"sha256sum": f"path=file 644 root root {sha256(b'PEM' + bytes([10])).hexdigest()} {path}"}
    assert commands(host.certificates, there, wanted=wanted_files) == []


FIT = """uid=0
user=root
sudo=root
os=debian
release=13
os_name=Debian GNU/Linux 13 (trixie)
arch=x86_64
init=systemd
systemd=257
ram_kib=33554432
python=3.13.5
disk=/opt/qwen 104857600 /dev/sda 0
disk=/srv/qwen/models 104857600 /dev/sda 0""".splitlines()


def test_a_fit_host_passes_without_a_command_and_an_unfit_one_is_refused() -> None:
    assert commands(host.check, {"/etc/os-release": FIT}, settings=settings()) == []
    old = [line.replace("release=13", "release=10") for line in FIT]
    ((kind, reasons),) = commands(host.check, {"/etc/os-release": old}, settings=settings())
    assert kind == "refused"
    assert "is not supported" in reasons


def test_wrong_settings_refuse_the_host() -> None:
    assert commands(host.refuse, {}, reasons=("a", "b")) == [("refused", "a\nb")]


def test_uv_is_fetched_once_and_replaced_when_it_is_another_version() -> None:
    version = pins().uv.version
    assert commands(engine.uv, state(f"uv={version}"), settings=settings()) == []
    for present in ("uv=", "uv=0.9.0"):
        ((command, stdin),) = commands(engine.uv, {**state(present), "uname -m": "x86_64"}, settings=settings())
        assert command == "python3 /usr/local/lib/qwen/fetch_uv.py"
        job = json.loads(stdin)
        assert job["sha256"] == pins().uv.wheels["x86_64"].sha256
        assert (job["index"], job["target"]) == ("https://pypi.org/simple", "/usr/local/bin/uv")


def test_the_way_to_the_index_through_a_proxy_is_told() -> None:
    chosen = settings(https_proxy="http://proxy:3128", no_proxy=["lab.internal"])
    ((command, _),) = commands(engine.uv, {**state("uv="), "uname -m": "x86_64"}, settings=chosen)
    assert "https_proxy=http://proxy:3128" in command
    assert "NO_PROXY=lab.internal" in command


def test_a_release_is_built_from_its_lock_and_only_when_it_is_not_whole() -> None:
    chosen = settings(wheel_directory="/wheels")
    steps = pinned_steps(chosen)
    ((command, stdin),) = commands(engine.release, state("current="), settings=chosen, steps=steps)
    assert command == "python3 /usr/local/lib/qwen/build_release.py"
    job = json.loads(stdin)
    assert job["id"] == wanted(chosen)
    assert job["python"] == "/usr/bin/python3"
    assert job["lock"] == pins().release("cpu").lock()
    assert job["find_links"] == ["/wheels", "https://download.pytorch.org/whl/cpu/torch/"]
    assert job["alias"] == {"name": "vllm", "version": "0.32.0+cpu"}
    assert [step["name"] for step in job["steps"]] == ["torchvision_operators"]
    assert commands(engine.release, state(f"complete=5 {wanted(chosen)}"), settings=chosen, steps=steps) == []


def test_credentials_of_an_index_are_on_no_command_line() -> None:
    chosen = settings(index_url="https://me:secret@index/simple")
    for operation, more in ((engine.uv, {}), (engine.release, {"steps": ()})):
        ((command, stdin),) = commands(operation, {**state("uv="), "uname -m": "x86_64"}, settings=chosen, **more)
        assert "secret" in stdin
        assert "secret" not in command


def test_current_is_switched_by_one_rename_and_only_when_it_is_another() -> None:
    chosen = settings()
    steps = pinned_steps(chosen)
    ((command, _),) = commands(engine.switch, state("current=releases/old"), settings=chosen, steps=steps)
    assert f"ln -sfn releases/{wanted(chosen)} /opt/qwen/.current.new" in command
    assert "mv -T /opt/qwen/.current.new /opt/qwen/current" in command
    assert commands(engine.switch, state(f"current=releases/{wanted(chosen)}"), settings=chosen, steps=steps) == []


def test_the_oldest_releases_go_and_the_current_one_never_does() -> None:
    built = state("current=releases/a", "complete=1 a", "complete=4 d", "complete=3 c", "complete=2 b")
    removed = [line for line, _ in commands(engine.prune, built, settings=settings(keep_releases=1))]
    assert [line.rsplit("/", 1)[-1] for line in removed] == ["c", "b"]
    assert all("rm -f" in line.split("&&")[0] and "release.json" in line.split("&&")[0] for line in removed)
    assert commands(engine.prune, built, settings=settings(keep_releases=5)) == []


UP = "umbrella=active enabled no"


@pytest.mark.parametrize(
    ("units", "runs"),
    [
        ([UP, "engine=cpu active no f f"], []),
        ([UP, "engine=cpu active no f g"], ["restart qwen-engine@cpu.service", "start qwen.service"]),
        ([UP, "engine=cpu failed no f f"], ["restart qwen-engine@cpu.service", "start qwen.service"]),
        (["umbrella=inactive enabled no", "engine=cpu active no f f"], ["start qwen.service"]),
        (["umbrella=active enabled yes", "engine=cpu active no f f"], ["daemon-reload"]),
        (
            ["umbrella=inactive unknown unknown", "engine=cpu inactive unknown f unknown"],
            ["daemon-reload", "enable --quiet qwen.service", "restart qwen-engine@cpu.service", "start qwen.service"],
        ),
        (
            [UP, "engine=cpu active no f f", "engine=old active no f f"],
            ["stop qwen-engine@old.service"],
        ),
    ],
    ids=["up to date", "other files", "failed", "stopped by hand", "unit changed", "bare host", "engine gone"],
)
def test_only_what_is_not_up_to_date_is_restarted(units: list[str], runs: list[str]) -> None:
    lines = [line for line, _ in commands(service.serve, {"fingerprint now": units}, settings=settings())]
    verbs = [part.strip() for line in lines for part in line.split("||")[0].split(";") if "systemctl" in part]
    assert [verb.removeprefix("systemctl ") for verb in verbs if "reset-failed" not in verb] == runs


def test_files_of_an_engine_that_the_plan_dropped_are_removed() -> None:
    units = [UP, "engine=cpu active no f f", "engine=old active no f f"]
    lines = [line for line, _ in commands(service.serve, {"fingerprint now": units}, settings=settings())]
    assert lines[-1] == (
        "rm -rf /etc/qwen/engines/old.yaml /etc/qwen/engines/old.env /etc/qwen/engines/old.gate.json "
        "/etc/systemd/system/qwen-engine@old.service.d"
    )


@pytest.mark.parametrize(
    ("found", "asked", "minor", "request_"),
    [
        ({"3.13": "/usr/bin/python3", "3.11": "/usr/bin/python3.11"}, None, "3.13", "/usr/bin/python3"),
        ({"3.13": "/usr/bin/python3", "3.11": "/usr/bin/python3.11"}, "3.11", "3.11", "/usr/bin/python3.11"),
        ({"3.9": "/usr/bin/python3", "3.11": "/usr/local/bin/python3.11"}, None, "3.11", "/usr/local/bin/python3.11"),
        ({"3.9": "/usr/bin/python3"}, None, "3.12", "3.12"),
        ({}, "3.13", "3.13", "3.13"),
    ],
)
def test_the_python_of_the_release(found: dict[str, str], asked: str | None, minor: str, request_: str) -> None:

    assert choose_python(settings(**({"python": asked} if asked else {})), found) == PythonChoice(minor, request_)


def test_a_release_is_another_when_lock_python_or_steps_are() -> None:
    cuda, older = load({}), load({"qwen_vllm": "0.32.0"})
    step = BuildStep("patches", "patch", "print()", {"a": "1"})
    ids = {
        release_id(cuda, PythonChoice("3.12", "x"), ()),
        release_id(older, PythonChoice("3.12", "x"), ()),
        release_id(cuda, PythonChoice("3.13", "x"), ()),
        release_id(cuda, PythonChoice("3.12", "x"), (step,)),
        release_id(cuda, PythonChoice("3.12", "x"), (BuildStep("patches", "patch", "print()", {"a": "2"}),)),
    }
    assert len(ids) == 5
    assert release_id(cuda, PythonChoice("3.12", "other path"), ()) in ids  # the same Python elsewhere is the same
