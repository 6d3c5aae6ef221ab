"""Where a setting was written down, for the words of its refusal."""

from __future__ import annotations

from pathlib import Path

from qwenlab.settings.origin import group_file, inventory_argument, places


def test_the_strongest_layer_names_the_place() -> None:
    layers = [("--data", {"a": 1}), ("inventory/lab.py", {"a": 2, "b": 2}), ("group_data/all.py", {"b": 3, "c": 3})]
    assert places(layers) == {"a": "--data", "b": "inventory/lab.py", "c": "group_data/all.py"}


def test_group_data_beside_the_inventory_wins_over_that_of_the_folder(tmp_path: Path) -> None:
    near, far = tmp_path / "inventory", tmp_path
    for folder in (near, far):
        (folder / "group_data").mkdir(parents=True, exist_ok=True)
        (folder / "group_data" / "gpus.py").touch()
    assert group_file("gpus", [far, near], "lab.py") == str(near / "group_data" / "gpus.py")
    assert group_file("other", [far, near], "lab.py") == "group 'other' in lab.py"


def test_the_inventory_is_found_on_the_command_line(tmp_path: Path) -> None:
    lab = tmp_path / "lab.py"
    lab.touch()
    assert inventory_argument(["-y", str(lab), "deploy.py"]) == str(lab)
    assert inventory_argument(["@local", "deploy"]) == "the inventory"
