"""Offline bundles: everything that a deploy would fetch, as a directory that can be carried to an air-gapped host.

python -m qwenlab bundle --engine cuda --python 3.12 --have freeze.txt --out DIR     make one
python -m qwenlab bundle --join PIECES --to DIR                                      put pieces together again
python -m qwenlab bundle --verify DIR                                                check every digest
"""
