# SPDX-License-Identifier: Apache-2.0
"""Hides the Python modules named in TESSERA_HIDDEN (separated by spaces) from every Python that has this folder in PYTHONPATH,
as on a machine where they are not installed."""
import os
import sys


class Hidden:
    """A finder of modules that comes before all others, and finds none of the hidden ones."""

    names = set(os.environ.get("TESSERA_HIDDEN", "").split())

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in cls.names:
            raise ModuleNotFoundError(f"No module named {name!r} (hidden by TESSERA_HIDDEN)", name=name)


sys.meta_path.insert(0, Hidden)
