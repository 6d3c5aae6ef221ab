"""The module's tests without pytest: `python -m tests.gpu`; exit code 1 when one fails."""

from __future__ import annotations

import sys
import time

from tests.gpu.both import WITHOUT, outcomes, problem


def main() -> int:
    failed = 0
    for kind in ("stock", "patched"):
        began = time.monotonic()
        for check, outcome in outcomes(kind).items():
            wrong = problem(check, kind)
            failed += wrong is not None
            print(
                f"{'FAILED' if wrong else 'passed'} {kind} {check}: {outcome.text} {dict(outcome.figures)}", flush=True
            )
        print(f"{kind}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{2 * len(WITHOUT) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
