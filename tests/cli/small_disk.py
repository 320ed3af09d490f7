# SPDX-License-Identifier: Apache-2.0
"""A file system of this process's own, whose room is set while it is used."""
import atexit
import ctypes
import os
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NAMESPACE, NEW_USER = 0x20000, 0x10000000
REMOUNT, PRIVATE = 32, 1 << 18 | 1 << 14  # MS_REMOUNT, MS_PRIVATE | MS_REC
DETACH = 2  # MNT_DETACH
PAGE = os.sysconf("SC_PAGE_SIZE")


def call(name, *args):
    if getattr(LIBC, name)(*args):
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def mount(source, target, kind, flags, options):
    call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())


def put(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class SmallDisk:
    """A tmpfs at `folder`, which nobody else sees. Ends the program with 77 (skipped) where a user may
    have no namespaces."""

    def __init__(self, folder):
        self.folder = folder
        try:
            try:
                call("unshare", NEW_NAMESPACE)
            except PermissionError:
                self.be_root_of_a_namespace()
            mount("none", "/", "none", PRIVATE, "")
            mount("none", folder, "tmpfs", 0, "")
            atexit.register(LIBC.umount2, folder.encode(), DETACH)
        except OSError as e:
            print(f"skipped: no file system of its own: {e}")
            sys.exit(77)

    @staticmethod
    def be_root_of_a_namespace():
        uid, gid = os.getuid(), os.getgid()
        call("unshare", NEW_NAMESPACE | NEW_USER)
        put("/proc/self/setgroups", "deny")
        put("/proc/self/uid_map", f"0 {uid} 1")
        put("/proc/self/gid_map", f"0 {gid} 1")

    def used(self):
        """Pages, files."""
        s = os.statvfs(self.folder)
        return (s.f_blocks - s.f_bfree) * s.f_frsize // PAGE, s.f_files - s.f_ffree

    def set_room(self, pages=1 << 16, files=1 << 16):
        """Free from now on."""
        used = self.used()
        mount("none", self.folder, "tmpfs", REMOUNT, f"size={(used[0] + pages) * PAGE},nr_inodes={used[1] + files}")
