"""Check that the packages which a bundle leaves to the host's own Python are there, in the versions that it expects.

`borrowed_packages.json` beside this program: `borrowed`, name to version; `trimmed`, members that the bundle's wheels
lack on purpose (listed so that such a release has a name of its own).
"""

import importlib.metadata
import json
import sys
from pathlib import Path

given = json.loads(Path("borrowed_packages.json").read_text())
wrong = []
for name, version in given["borrowed"].items():
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found != version:
        wrong.append(f"{name} {version} ({found} there)")
if wrong:
    sys.exit("the host's Python does not have what the bundle leaves to it: " + ", ".join(wrong))
print(f"{len(given['borrowed'])} packages of the host are as the bundle expects them")
