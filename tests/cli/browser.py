# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium: its elements, and what its console says."""
import os
import shutil
import subprocess
import tempfile
from html.parser import HTMLParser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}


class Element:
    def __init__(self, name, attributes, parent):
        self.name, self.attributes, self.parent, self.children = name, dict(attributes), parent, []

    def __getitem__(self, key):
        return self.attributes.get(key)

    def all(self):
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child.all()

    def having(self, *keys):
        return [e for e in self.all() if all(k in e.attributes for k in keys)]

    def of_class(self, name):
        return [e for e in self.all() if name in (e["class"] or "").split()]

    def named(self, name):
        return [e for e in self.all() if e.name == name]

    def text(self):
        return "".join(c if isinstance(c, str) else c.text() for c in self.children)


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.root = self.at = Element("document", [], None)

    def handle_starttag(self, tag, attrs):
        new = Element(tag, attrs, self.at)
        self.at.children.append(new)
        if tag not in VOID:
            self.at = new

    def handle_endtag(self, tag):
        at = self.at
        while at and at.name != tag:
            at = at.parent
        if at:
            self.at = at.parent

    def handle_data(self, data):
        self.at.children.append(data)


def chromium(url, *more, timeout=120):
    """(stdout, lines of the console)"""
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MALLOC_PERTURB_", "LD_LIBRARY_PATH")}
    with tempfile.TemporaryDirectory() as folder:
        p = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                            f"--user-data-dir={folder}", "--enable-logging=stderr", "--virtual-time-budget=20000",
                            *more, url], capture_output=True, text=True, timeout=timeout, env=env)
    return p.stdout, [line for line in p.stderr.splitlines() if "CONSOLE" in line]


def open_page(path, fragment=""):
    """The document after its scripts have run, and what the console says."""
    out, console = chromium("file://" + os.path.abspath(path).replace("%", "%25").replace("#", "%23")
                            .replace("?", "%3F") + fragment, "--dump-dom")
    reader = Reader()
    reader.feed(out)
    return reader.root, console
