"""Settings: what is taken, and what is refused with which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from qwenlab.planner.checks import checkpoint_names, kv_dtype_names
from qwenlab.settings import Settings, SettingsError, load
from qwenlab.settings.fields import LONGEST_S
from qwenlab.settings.foreign import _OTHERS
from qwenlab.settings.pairs import from_pairs
from qwenlab.settings.planner import SETTING_OF
from qwenlab.settings.wording import PATTERNS

CPU = {"qwen_engine": "cpu", "qwen_cpu_checkpoint": "lab/tiny", "qwen_cpu_revision": "a" * 40}


def refused(data: dict[str, Any], where: dict[str, str] | None = None) -> list[str]:
    """The problems that `data` has, as lines."""
    with pytest.raises(SettingsError) as caught:
        load(data, where)
    return [str(problem) for problem in caught.value.problems]


def test_no_setting_at_all_is_a_valid_host() -> None:
    assert load({}).engine == "cuda"


def test_secrets_are_no_part_of_what_is_printed() -> None:
    shown = repr(load({"qwen_api_key": "topsecretkey", "qwen_hub_token": "hf_topsecret"}))
    assert "port=8000" in shown
    assert "topsecret" not in shown


def test_other_keys_are_not_ours() -> None:
    assert load({"ssh_user": "admin", "_sudo": True, "queue_port": 1, "site": "lab", "ssh_port": 22}) == load({})


def test_words_that_others_use_too_are_not_ours() -> None:
    """An inventory may serve other deploys."""
    assert load({"user": "www", "port": 80, "http_proxy": "http://proxy", "python": "3.9"}) == load({})


def test_the_meanings_name_what_the_planner_knows() -> None:
    def meaning(name: str) -> str:
        return Settings.model_fields[name].description or ""

    assert all(f"`{word}`" in meaning("checkpoint") for word in checkpoint_names())
    assert all(f"`{word}`" in meaning("kv_cache_dtype") for word in kv_dtype_names())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"qwen_prot": 8000}, ["qwen_prot (group_data/gpus.py): no such setting", "did you mean qwen_port?"]),
        ({"qwen_xyzzyx": 1}, ["qwen_xyzzyx", "docs/settings.md"]),
        ({"qwen_port": "8000"}, ["qwen_port", "valid integer"]),
        ({"qwen_port": 70000}, ["qwen_port", "less than or equal to 65535"]),
        ({"qwen_offline": 1}, ["qwen_offline", "valid string"]),
        ({"qwen_served_model_names": []}, ["qwen_served_model_names", "at least 1 item"]),
        ({"qwen_user": "Qwen!"}, ["qwen_user", "'Qwen!' is not a user's name: small letters"]),
        ({"qwen_bind": "everywhere"}, ["qwen_bind", "'everywhere' is not an IP address"]),
        ({"qwen_bind": "0.0.0.0", "qwen_generate_api_key": False}, ["would answer anybody", "qwen_api_key_file"]),
        ({"qwen_api_key": "12345678", "qwen_api_key_file": "key"}, ["both set", "keep one"]),
        ({"qwen_hub_token": "t", "qwen_hub_token_file": "t"}, ["both set", "keep one"]),
        ({"qwen_vllm": "0.31.0"}, ["'0.31.0' is not pinned", "0.33.0, 0.32.0"]),
        ({**CPU, "qwen_vllm": "0.33.0"}, ["'0.33.0' is not pinned", "'cpu'", "0.32.0"]),
        ({"qwen_python": "3.10"}, ["qwen_python = '3.10'", "3.11"]),
        (
            {"qwen_offline": True},
            ["names the directory of a bundle", "no longer True or False", "qwen_wheel_directory"],
        ),
        ({"qwen_offline": False}, ["no longer True or False"]),
        ({"qwen_offline": ""}, ["qwen_offline", "at least 1 character"]),
        ({"qwen_offline": "host:bundle"}, ["'host:bundle': write host:/DIR"]),
        ({"qwen_offline": "host:/a/../b"}, ["write host:/DIR"]),
        ({"qwen_offline": "host:/"}, ["write host:/DIR"]),
        ({"qwen_offline": "b", "qwen_wheel_directory": "/w"}, ["qwen_offline uses its bundle alone"]),
        ({"qwen_offline": "b", "qwen_model_source": "peer"}, ["qwen_offline takes checkpoints from its bundle"]),
        ({"qwen_offline": "b", "qwen_cuda_from": "apt"}, ["qwen_offline asks no repository", "qwen_cuda_from"]),
        ({"qwen_engine": "cpu"}, ["qwen_cpu_checkpoint", "qwen_cpu_revision"]),
        ({**CPU, "qwen_cpu_revision": "main"}, ["qwen_cpu_revision", "'main' is not a commit"]),
        ({"qwen_extra_ca_certificates": ["a/ca.pem", "b/ca.pem"]}, ["two certificates are named ca"]),
        ({"qwen_model_directory": "models"}, ["qwen_model_directory", "'models' is not an absolute path"]),
        ({"qwen_model_directory": "/"}, ["qwen_model_directory", "'/' is not an absolute path"]),
        ({"qwen_model_directory": "/etc"}, ["qwen_model_directory", "/etc is the system's own"]),
        ({"qwen_release_directory": "/opt"}, ["qwen_release_directory", "/opt is the system's own"]),
        ({"qwen_release_directory": "//usr"}, ["qwen_release_directory", "the system's own"]),
        ({"qwen_home": "/home"}, ["qwen_home", "/home is the system's own"]),
        ({"qwen_home": "/proc/1"}, ["qwen_home", "the system's own"]),
        ({"qwen_home": "/srv/../etc"}, ["qwen_home", "'..'"]),
        ({"qwen_uv_cache_directory": "/var/cache"}, ["qwen_uv_cache_directory", "the system's own"]),
        ({"qwen_user": "root"}, ["qwen_user", "does not run as root"]),
        ({"qwen_served_model_names": [""]}, ["qwen_served_model_names", "'' is no model name"]),
        ({"qwen_served_model_names": ["a b"]}, ["qwen_served_model_names", "'a b'", "no spaces"]),
        ({"qwen_engine_env": {"1A": "x"}}, ["qwen_engine_env", "'1A' is no variable's name"]),
        ({"qwen_engine_env": {"A B": "x"}}, ["qwen_engine_env", "'A B'"]),
        ({"qwen_engine_env": {"A": "x\ny"}}, ["qwen_engine_env", "A has more than one line"]),
        ({"qwen_power_limit_w": "low"}, ["qwen_power_limit_w", "or 'advised' is expected, not 'low'"]),
        ({"qwen_power_limit_w": {"RTX 3090": "low"}}, ["qwen_power_limit_w", "a dict from model name to number"]),
        ({"qwen_power_limit_w": 0.0}, ["qwen_power_limit_w", "above 0"]),
        ({"qwen_power_limit_w": {"RTX 3090": -5.0}}, ["qwen_power_limit_w", "-5 W is no power limit"]),
        ({"qwen_engine_args": {"port": 1}}, ["qwen_engine_args", "port is set by qwen_port"]),
        ({"qwen_engine_args": {"--served_model_name": "x"}}, ["is set by qwen_served_model_names"]),
        ({"qwen_engine_args": {"host": "::"}}, ["host is set by qwen_bind"]),
        ({"qwen_engine_args": {"model": "a/b"}}, ["model is set by qwen_checkpoint"]),
        ({"qwen_engine_args": {"tensor_parallel_size": 2}}, ["is set by qwen_tensor_parallel"]),
        ({"qwen_engine_args": {"max-model-len": 4096}}, ["is set by qwen_context"]),
        ({"qwen_engine_args": {"api-key": "top"}}, ["api-key is set by qwen_api_key_file"]),
        ({"qwen_engine_args": {"ssl-keyfile": "/k"}}, ["ssl-keyfile is set by qwen_gateway_key"]),
        ({"qwen_engine_args": {"": 1}}, ["'' is no argument's name"]),
        ({"qwen_engine_args": {"a b": 1}}, ["'a b' is no argument's name"]),
        ({"qwen_engine_env": {"CUDA_VISIBLE_DEVICES": "0"}}, ["CUDA_VISIBLE_DEVICES is set by qwen_cards"]),
        ({"qwen_engine_env": {"HF_TOKEN": "hf"}}, ["HF_TOKEN is set by qwen_hub_token_file"]),
        ({"qwen_engine_env": {"AWS_SECRET_ACCESS_KEY": "k"}}, ["AWS_SECRET_ACCESS_KEY sounds like a secret"]),
        ({"qwen_engine_env": {"my_password": "k"}}, ["my_password sounds like a secret"]),
        ({"qwen_cards": []}, ["qwen_cards", "leave the setting out"]),
        ({"qwen_cards": ["0", " "]}, ["an entry names no card"]),
        ({"qwen_cards": [True]}, ["qwen_cards", "valid string"]),
        ({"qwen_tensor_parallel": True}, ["qwen_tensor_parallel", "1, 2, 4 or 8"]),
        ({"qwen_home": "/srv/a%b"}, ["qwen_home", "'%' in it", "letters, digits"]),
        ({"qwen_model_directory": '/srv/"m"'}, ["qwen_model_directory", "in it"]),
        ({"qwen_release_directory": "/opt/$x"}, ["qwen_release_directory", "'$' in it"]),
        ({"qwen_uv_cache_directory": "/var/a;b"}, ["qwen_uv_cache_directory", "';' in it"]),
        ({"qwen_wheel_directory": "/w:x"}, ["qwen_wheel_directory", "':' in it"]),
        ({"qwen_model_source": "path", "qwen_model_path": "/m'x"}, ["qwen_model_path", "in it"]),
        ({"qwen_http_proxy": 'http://p:1/";x'}, ["qwen_http_proxy", "no part of an address"]),
        ({"qwen_https_proxy": "http://pröxy:1"}, ["qwen_https_proxy", "'ö' is no part"]),
        ({"qwen_no_proxy": ["a,b"]}, ["qwen_no_proxy", "'a,b'"]),
        ({"qwen_no_proxy": ["a\nb"]}, ["qwen_no_proxy"]),
        ({"qwen_extra_index_urls": ["pypi.lab/simple"]}, ["qwen_extra_index_urls", "neither an address"]),
        ({"qwen_find_links": ["https://a b"]}, ["qwen_find_links", "neither an address"]),
        ({"qwen_extra_ca_certificates": ["a\nb.pem"]}, ["qwen_extra_ca_certificates", "names no file"]),
        ({"qwen_extra_ca_certificates": [""]}, ["qwen_extra_ca_certificates", "names no file"]),
        ({"qwen_peer_address": "a b"}, ["qwen_peer_address", "neither a host name nor an IP address"]),
        ({"qwen_peer_address": "http://peer"}, ["qwen_peer_address", "neither a host name"]),
        ({"qwen_alertmanagers": ["a b:9093"]}, ["qwen_alertmanagers", "no host:port"]),
        ({"qwen_alertmanagers": ["watch:99999"]}, ["qwen_alertmanagers", "no host:port"]),
        ({"qwen_bind": "fe80::1%eth0"}, ["qwen_bind", "one interface alone"]),
        ({"qwen_prometheus_bind": "fe80::1%eth0"}, ["qwen_prometheus_bind", "one interface alone"]),
        ({"qwen_scraped_from": ["fe80::1%eth0"]}, ["qwen_scraped_from", "neither an IP address nor a network"]),
        ({"qwen_gateway_names": ["fe80::1%eth0"]}, ["qwen_gateway_names", "neither a host name"]),
        ({"qwen_api_key": "seven77"}, ["qwen_api_key", "at least 8 characters"]),
        ({"qwen_api_key": "schlüssel"}, ["qwen_api_key", "one line of letters"]),
        ({"qwen_api_key": "two\nlines!"}, ["qwen_api_key", "one line of letters"]),
        ({"qwen_hub_token": "hf_a hf_b"}, ["qwen_hub_token", "without spaces"]),
        ({"qwen_hub_token": ""}, ["qwen_hub_token", "at least 1 character"]),
        ({"qwen_prometheus": True, "qwen_prometheus_port": 8080, "qwen_gateway": True}, ["are both 8080"]),
        (
            {"qwen_scraped_from": ["::1"], "qwen_gateway": True, "qwen_gateway_port": 9100},
            ["node exporter", "both 9100"],
        ),
        ({"qwen_speculation": "off", "qwen_draft_tokens": 3}, ["qwen_speculation = 'off'", "qwen_draft_tokens"]),
        ({"qwen_port": "8000"}, ["not '8000'; write 8000"]),
        ({"qwen_port": None}, ["valid integer, not None"]),
        ({"qwen_context": "128k"}, ["not '128k'; write 131072"]),
        ({"qwen_context": "all"}, ["valid integer, not 'all'"]),
        ({"qwen_tensor_parallel": "2"}, ["1, 2, 4 or 8, not '2'; write 2"]),
        ({"qwen_tensor_parallel": 3}, ["1, 2, 4 or 8, not 3"]),
        ({"qwen_workload": "Chat"}, ["not 'Chat'; write 'chat'"]),
        ({"qwen_vision": "yes"}, ["valid boolean, not 'yes'; write True"]),
        ({"qwen_min_ram_gib": "16GB"}, ["not '16GB'; write 16.0"]),
        ({"qwen_vllm": 0.33}, ["valid string, not 0.33; write '0.33'"]),
        ({"qwen_cards": "0,1"}, ["valid list, not '0,1'; write ['0', '1']"]),
        ({"qwen_cards": 0}, ["write [0]"]),
        ({"qwen_served_model_names": "qwen"}, ["write ['qwen']"]),
        ({"qwen_http_proxy": "proxy:3128"}, ["'proxy:3128' is not an address that starts with http://"]),
        ({"qwen_index_url": "pypi.lab"}, ["'pypi.lab' is not an address"]),
        ({"qwen_tp": 2}, ["no such setting; here it is qwen_tensor_parallel"]),
        ({"qwen_max_model_len": 4096}, ["here it is qwen_context"]),
        ({"qwen_host": "0.0.0.0"}, ["here it is qwen_bind"]),
        ({"qwen_max_num_seqs": 4}, ["here it is qwen_concurrency"]),
        ({"qwen_gpu_memory_utilization": 0.9}, ["qwen_engine_args = {'gpu-memory-utilization': ...}"]),
        ({"qwen_p2p": "auto"}, ["qwen_verify_peers"]),
        ({"quen_port": 1}, ["quen_port", "did you mean qwen_port?"]),
        ({"Qwen_port": 1}, ["Qwen_port", "did you mean qwen_port?"]),
        ({"qwen-port": 1}, ["qwen-port", "did you mean qwen_port?"]),
        ({"QWEN_TENSOR_PARALEL": 1}, ["did you mean qwen_tensor_parallel?"]),
        ({"workload": "batch"}, ["workload", "did you mean qwen_workload?"]),
    ],
)
def test_wrong_settings_are_refused_with_key_place_and_what_is_allowed(data: dict[str, Any], words: list[str]) -> None:
    text = "\n".join(refused(data, dict.fromkeys(data, "group_data/gpus.py")))
    assert all(word in text for word in words), text
    assert "group_data/gpus.py" in text


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("peer_port", 65_535),
        ("start_timeout_s", LONGEST_S),
        ("stop_timeout_s", LONGEST_S),
        ("gate_wait_s", LONGEST_S),
        ("liveness_limit_s", LONGEST_S),
        ("gateway_silence_s", LONGEST_S),
        ("apt_lock_timeout_s", LONGEST_S),
        ("reboot_timeout_s", LONGEST_S),
        ("prometheus_days", 36_500),
        ("prometheus_max_gib", 1_048_576),
        ("journal_max_mib", 16_777_216),
    ],
)
def test_numbers_end_where_the_programs_that_read_them_do(key: str, most: int) -> None:
    assert getattr(load({f"qwen_{key}": most}), key) == most
    assert f"less than or equal to {most}" in "".join(refused({f"qwen_{key}": most + 1}))


def test_haproxy_counts_the_longest_silence() -> None:
    assert LONGEST_S * 1000 < 2**31


def test_room_is_a_number_that_a_disk_can_have() -> None:
    assert "finite" in "".join(refused({"qwen_min_model_gib": float("inf")}))


@pytest.mark.parametrize(
    "data",
    [
        {"qwen_home": "/srv/größe/qwen-1_a+b@c=d~e,f"},
        {"qwen_http_proxy": "http://user:p%22w@proxy.lab:3128/"},
        {"qwen_no_proxy": [".lab", "10.0.0.0/8", "[::1]", "*.lab"]},
        {"qwen_find_links": ["https://a/b", "/srv/wheels", "file:///w"]},
        {"qwen_extra_ca_certificates": ["~/lab-ca.pem", "/etc/ca_2.crt"]},
        {"qwen_peer_address": "rack_1.lab"},
        {"qwen_peer_address": "fd00::5"},
        {"qwen_alertmanagers": ["alert_manager:9093", "[fd00::5]:9093", "10.0.0.1:80"]},
        {"qwen_engine_env": {"TOKENIZERS_PARALLELISM": "false", "VLLM_MAX_TOKENS_PER_EXPERT_FUSED_MOE_CHUNK": "1"}},
        {"qwen_engine_args": {"compilation-config.mode": 3, "--max_num_seqs": 4}},
    ],
    ids=lambda data: next(iter(data)),
)
def test_what_real_labs_write_is_taken(data: dict[str, Any]) -> None:
    assert load(data)


def test_cards_may_be_named_by_number() -> None:
    assert load({"qwen_cards": [1, "0"]}).cards == ["1", "0"]


def test_a_key_of_data_that_is_no_text_is_not_ours() -> None:
    data: dict[Any, Any] = {1: 2, None: 3, ("a",): 4, "qwen_port": 9000}
    assert load(data).port == 9000


@pytest.mark.parametrize(
    ("pair", "key", "value"),
    [
        ("python=3.12", "qwen_python", "3.12"),
        ("qwen_python=3.10", "qwen_python", "3.10"),
        (f"cpu_revision={'1' * 40}", "qwen_cpu_revision", "1" * 40),
        ("driver_version=580.10", "qwen_driver_version", "580.10"),
        ("python=null", "qwen_python", None),
        ("port=8080", "qwen_port", 8080),
        ("served_model_names=[a, b]", "qwen_served_model_names", ["a", "b"]),
        ("vision=true", "qwen_vision", True),
        ("prot=1", "qwen_prot", 1),
    ],
)
def test_a_setting_that_is_text_keeps_its_digits_on_the_command_line(pair: str, key: str, value: object) -> None:
    assert from_pairs([pair]) == {key: value}


def test_a_key_in_capitals_on_the_command_line_is_told_its_name() -> None:
    with pytest.raises(SettingsError, match=r"^QWEN_PORT: no such setting; did you mean qwen_port\?$"):
        from_pairs(["QWEN_PORT=8001"])


def test_every_fault_is_told_at_once() -> None:
    assert len(refused({"qwen_prot": 1, "qwen_bind": "x", "qwen_keep_releases": -1})) == 3


def test_a_secret_is_not_repeated_in_its_refusal() -> None:
    assert "short" not in "".join(refused({"qwen_api_key": "short"}))


@pytest.mark.parametrize(
    ("data", "address"),
    [
        ({"qwen_generate_api_key": False}, "127.0.0.1"),
        ({}, "0.0.0.0"),
        ({"qwen_api_key": "12345678"}, "0.0.0.0"),
        ({"qwen_api_key_file": "key"}, "0.0.0.0"),
        ({"qwen_api_key": "12345678", "qwen_bind": "10.0.0.5"}, "10.0.0.5"),
        ({"qwen_bind": "::1"}, "::1"),
    ],
)
def test_without_a_key_only_loopback_is_served(data: dict[str, Any], address: str) -> None:
    assert load(data).bind_address == address


@pytest.mark.parametrize(
    ("data", "sources", "indexes"),
    [
        ({}, (), ("https://pypi.org/simple",)),
        (CPU, ("https://download.pytorch.org/whl/cpu/torch/",), ("https://pypi.org/simple",)),
        ({**CPU, "qwen_find_links": []}, (), ("https://pypi.org/simple",)),
        ({**CPU, "qwen_wheel_directory": "/w", "qwen_find_links": []}, ("/w",), ("https://pypi.org/simple",)),
        ({**CPU, "qwen_offline": "bundles/cpu"}, (), ()),
        ({"qwen_extra_index_urls": ["https://a/b"]}, (), ("https://a/b", "https://pypi.org/simple")),
    ],
)
def test_where_wheels_come_from(data: dict[str, Any], sources: tuple[str, ...], indexes: tuple[str, ...]) -> None:
    settings = load(data)
    assert (settings.wheel_sources, settings.index_urls) == (sources, indexes)


@pytest.mark.parametrize(
    ("data", "secret"),
    [
        ({"qwen_api_key": 12345678}, "12345678"),
        ({"qwen_hub_token": ["hf_secret"]}, "hf_secret"),
        ({"qwen_http_proxy": "me:secret@proxy:3128"}, "secret"),
        ({"qwen_index_url": "me:secret@pypi.lab"}, "secret"),
        ({"qwen_engine_env": {"KEY_OF_MINE": 4711}}, "4711"),
    ],
)
def test_a_refusal_repeats_no_secret(data: dict[str, Any], secret: str) -> None:
    assert secret not in "\n".join(refused(data, {}))


def test_every_pattern_of_a_setting_has_words() -> None:
    patterns = {
        pattern
        for field in Settings.model_fields.values()
        for one in field.metadata
        if (pattern := getattr(one, "pattern", None))
    }
    assert patterns <= {pattern for pattern, _ in PATTERNS}


def test_every_foreign_name_points_at_settings_that_there_are() -> None:
    named = [word for text in (*SETTING_OF.values(), *_OTHERS.values()) for word in re.findall(r"qwen_(\w+)", text)]
    assert set(named) <= Settings.model_fields.keys()
    assert not _OTHERS.keys() & Settings.model_fields.keys()
