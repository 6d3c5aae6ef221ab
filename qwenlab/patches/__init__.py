"""The patch series: what vLLM needs on these machines, from the manifest to the patched tree.

Modules:
    applier: parses, applies, reverses and verifies diffs; standard library only, it is also what runs on a host.
    manifest: `patches/<version>/series.yaml` as typed values.
    needs: which patches a plan needs.
    job: manifest and plan to the job that `applier` carries out.
    extra: other people's series (`qwen_extra_patches`).
    trees: where `check` and `port` find a release's Python tree.
    cli: `python -m qwenlab patches`.
"""
