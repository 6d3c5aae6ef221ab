"""Put a bundle's prebuilt FlashInfer kernels where FlashInfer looks before it compiles (`flashinfer/data/aot`).

`prebuilt_kernels.json` beside this program: path below the bundle to sha256, as the manifest has them.
"""

import hashlib
import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

bundle = Path(os.environ["QWEN_BUNDLE"])
folder = Path(sysconfig.get_paths()["purelib"], "flashinfer", "data", "aot")
digests = json.loads(Path("prebuilt_kernels.json").read_text())
for path, sha256 in digests.items():
    source = bundle / path
    target = folder / Path(path).relative_to("kernels")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".new")
    shutil.copyfile(source, fresh)
    if hashlib.sha256(fresh.read_bytes()).hexdigest() != sha256:
        sys.exit(f"{source} is damaged: bring the bundle anew")
    os.replace(fresh, target)
print(f"{len(digests)} files in {folder}")
