"""Let a torchvision whose compiled operators do not load be imported.

PyPI's torchvision is built against CUDA, so that its operators do not load beside torch's CPU build, and its
`_meta_registrations` then asks torch for operators that nobody declared (torchvision 0.28.0). vLLM needs its Python
part alone (image transforms). The operators are declared here when they did not load; calling one still fails.
"""

import os
import sysconfig
from pathlib import Path

DECLARATIONS = """

if not _has_ops():
    _declared = torch.library.Library("torchvision", "DEF")
    _declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

place = Path(sysconfig.get_paths()["purelib"], "torchvision", "extension.py")
text = place.read_text()
if DECLARATIONS not in text:
    fresh = place.with_suffix(".new")
    fresh.write_text(text + DECLARATIONS)
    os.replace(fresh, place)
print(f"declared in {place}")
