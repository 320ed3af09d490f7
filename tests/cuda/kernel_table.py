#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the machine code of every kernel for sm_90 with the stored table kernel_table.txt: widths
of loads and stores, registers, shared and local memory. It reads the objects that the build of the
module leaves, so nothing is compiled again and no tool of CUDA's is needed.
usage: kernel_table.py MODULE NVCC_VERSION [--write | --list]
       kernel_table.py --architectures OBJECT
--write: writes the table again and keeps its reasons; --list: prints every instance;
--architectures: prints for which ones an object has machine code (sm_) and PTX (compute_)"""
import ctypes
import glob
import os
import re
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "kernel_table.txt")
ARCH = 90
COLUMNS = ("load", "store", "split", "narrow", "regs", "regs64", "shared", "local")
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# What the machine code of each kernel for sm_90 has, over all instances of its template.
# tests/cuda/kernel_table.py compares it with the objects of a build and writes it with --write.
#   load, store  bytes of the widest access to global memory
#   split        instances whose widest store is narrower than their widest load
#   narrow       most stores of an instance that are narrower than its widest
#   regs, regs64 most registers of an instance without and with f64 among its template arguments
#   shared       most bytes of static shared memory
#   local        most instructions on local memory (spilled registers and arrays on the stack)
# A reason stands after the numbers: 'stores: why' where an instance loads 16 bytes and stores fewer,
# 'local: why' where it touches local memory. Without a reason the test refuses both.
"""


class Unreadable(Exception):
    pass


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def sections(elf):
    """Name, type, link and content of every section of a 64-bit ELF file."""
    at, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, at + i * size) for i in range(count)]
    text = heads[names][4]
    for name, kind, _, _, offset, length, *_ in heads:
        begin = text + name
        content = b"" if kind == 8 else elf[offset:offset + length]  # 8: SHT_NOBITS
        yield elf[begin:elf.index(b"\0", begin)].decode(), length, content


def unpacked(packed, size):
    """nvcc compresses large code by zstd, for which python3.11 has no module."""
    try:
        zstd = ctypes.CDLL("libzstd.so.1")
    except OSError:
        skip("libzstd.so.1 is not installed, and machine code of the module is compressed")
    room = ctypes.create_string_buffer(size)
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    got = zstd.ZSTD_decompress(room, ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed)))
    if got != size:
        raise Unreadable("the machine code of the module is not compressed by zstd")
    return room.raw


def entries(path):
    """Kind (1: PTX, 2: machine code), architecture, content and unpacked size (0: it is not packed) of
    all that the fat binaries of an object hold."""
    for name, _, fat in sections(open(path, "rb").read()):
        if name != ".nv_fatbin":
            continue
        at = 0
        while at + 16 <= len(fat):
            magic, _, head, size = struct.unpack_from("<IHHQ", fat, at)
            if magic != 0xBA55ED50:
                raise Unreadable(f"{path}: no fat binary at {at} of .nv_fatbin")
            entry, at = at + head, at + head + size
            while entry < at:
                kind, _, head, size, packed = struct.unpack_from("<HHIQI", fat, entry)
                code = fat[entry + head:entry + head + (packed or size)]
                whole = struct.unpack_from("<Q", fat, entry + 56)[0] if packed else 0
                yield kind, struct.unpack_from("<I", fat, entry + 28)[0], code, whole
                entry += head + size
            at += -at % 8


def cubins(path):
    """The machine code for ARCH."""
    for kind, arch, code, whole in entries(path):
        if kind == 2 and arch == ARCH:
            yield unpacked(code, whole) if whole else code


# The low 12 bits of an instruction: its operation, and the form of its operands in bits 9 to 11.
LOADS, STORES = (0x180, 0x181), (0x185, 0x186)  # of global memory: LD and LDG, ST and STG
LOCAL = (0x183, 0x187)                          # LDL and STL
WIDTH = (1, 1, 2, 2, 4, 8, 16, 16)              # by bits 73 to 75


def accesses(code):
    """Widths of all loads and stores of global memory, and the number of accesses to local memory."""
    loads, stores, local = [], [], 0
    for low, high in struct.iter_unpack("<QQ", code):
        operation, width = low & 0x1FF, WIDTH[high >> 9 & 7]
        if operation in LOADS:
            loads.append(width)
        elif operation in STORES:
            stores.append(width)
        elif operation in LOCAL:
            local += 1
    return loads, stores, local


def registers(info, symbols):
    """By function: attribute 0x2f of .nv.info holds the index of a symbol and its registers."""
    found, at = {}, 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == 4 and attribute == 0x2F:
            symbol, count = struct.unpack_from("<II", info, at + 4)
            found[symbols[symbol]] = count
        at += 4 + (size if form == 4 else 0)
    return found


def kernels(cubin):
    """Mangled name and numbers of every kernel."""
    table = {name: (length, content) for name, length, content in sections(cubin)}
    names, symbols = table[".strtab"][1], []
    for name, *_ in struct.iter_unpack("<IBBHQQ", table[".symtab"][1]):
        symbols.append(names[name:names.index(b"\0", name)].decode())
    regs = registers(table[".nv.info"][1], symbols)
    for section, (_, code) in table.items():
        if not section.startswith(".text."):
            continue
        name = section[len(".text."):]
        loads, stores, local = accesses(code)
        widest = max(stores, default=0)
        yield name, {"load": max(loads, default=0), "store": widest,
                     "split": int(0 < widest < max(loads, default=0)),
                     "narrow": sum(w < widest for w in stores), "regs": regs[name],
                     "shared": table.get(".nv.shared." + name, (0, b""))[0], "local": local}


def instances(module):
    """(file, kernel, name of the instance, numbers) of every kernel of the module."""
    found = []
    for path in sorted(glob.glob(module + ".p/*.cu.o")):
        file = os.path.basename(path)[:-2].replace("_", "/", 1)
        file = file if file.split("/")[0] in ("fast", "plain", "library") else file.replace("/", "_")
        for cubin in cubins(path):
            found += [(file, name, numbers) for name, numbers in kernels(cubin)]
    if not found:
        skip(f"{module}.p has no object with code for sm_{ARCH}")
    plain = subprocess.run(["c++filt"], input="\n".join(f[1] for f in found), text=True, check=True,
                           capture_output=True).stdout.splitlines()
    for (file, _, numbers), name in zip(found, plain):
        name = re.sub(r"^void |\((?!anonymous).*", "", name)
        base, _, arguments = name.partition("<")
        op = re.match(r"(\w+_op)\b", arguments)
        yield file, base + (":" + op[1] if op else ""), name, numbers


def summary(found):
    """The rows of the table, and the keys of rows in which an instance stores less than it loads."""
    rows, narrower = {}, set()
    for file, kernel, name, numbers in found:
        row = rows.setdefault((file, kernel), dict.fromkeys(COLUMNS, 0))
        double = "regs64" if re.search(r"\bdouble\b", name) else "regs"
        for column, value in numbers.items():
            column = double if column == "regs" else column
            row[column] = row[column] + value if column == "split" else max(row[column], value)
        if numbers["load"] == 16 and 0 < numbers["store"] < 16:
            narrower.add((file, kernel))
    return rows, narrower


def read_table():
    version, rows, reasons = "", {}, {}
    for line in open(TABLE, encoding="utf-8"):
        words = line.split(None, 2 + len(COLUMNS))
        if line.startswith("# nvcc "):
            version = words[2]
        elif words and words[0] not in ("#", "file"):
            key = tuple(words[:2])
            rows[key] = dict(zip(COLUMNS, map(int, words[2:2 + len(COLUMNS)])))
            reasons[key] = words[2 + len(COLUMNS)].strip() if len(words) > 2 + len(COLUMNS) else ""
    return version, rows, reasons


def write_table(version, rows, reasons):
    lines = [("file", "kernel") + COLUMNS + ("reason",)]
    lines += [key + tuple(str(row[c]) for c in COLUMNS) + (reasons.get(key, ""),)
              for key, row in sorted(rows.items())]
    wide = [max(len(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    with open(TABLE, "w", encoding="utf-8") as out:
        out.write(f"{HEAD}# nvcc {version}\n")
        for line in lines:
            cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(line, wide))]
            out.write(("  ".join(cells) + "  " + line[-1]).rstrip() + "\n")


def check_age(module):
    """Meson 1.0 knows no header that a .cu file includes, so a changed one leaves old objects."""
    objects = glob.glob(module + ".p/*.cu.o")
    root = os.path.join(HERE, "../..")
    headers = [os.path.join(root, "src/core/op_list.h"), os.path.join(root, "kernels/update_t.h")]
    for ending in ("*.cuh", "*.h"):
        headers += glob.glob(os.path.join(root, "kernels/cuda/**", ending), recursive=True)
    newest = max(headers, key=os.path.getmtime)
    if objects and min(map(os.path.getmtime, objects)) < os.path.getmtime(newest):
        print(f"FAIL {os.path.relpath(newest, root)} is newer than objects of the module, which ninja does not "
              f"rebuild for it: remove {module}.p/*.cu.o and build again")
        sys.exit(1)


def compare(version, rows, narrower):
    stored_version, stored, reasons = read_table()
    faults = []
    for key, row in sorted(rows.items()):
        where, why = " ".join(key), reasons.get(key, "")
        if key in narrower and "stores:" not in why:
            faults.append(f"{where}: an instance loads 16 bytes at once and stores fewer")
        if row["local"] and "local:" not in why:
            faults.append(f"{where}: {row['local']} accesses to local memory")
        old = stored.get(key)
        if not old:
            faults.append(f"{where}: not in the table")
            continue
        for column in COLUMNS:
            worse = row[column] < old[column] if column in ("load", "store") else row[column] > old[column]
            # Another compiler counts otherwise, but is held to widths alike.
            if worse and (version == stored_version or column in ("load", "store", "split")):
                faults.append(f"{where}: {column} is {row[column]}, in the table {old[column]}")
    faults += [f"{' '.join(key)}: in the table, but not in the module" for key in sorted(stored.keys() - rows.keys())]
    for fault in faults:
        print("FAIL " + fault)
    if faults:
        print(f"Mend the kernels, or look at the change and run {os.path.basename(sys.argv[0])} with --write.")
    print(f"{len(rows)} kernels, {len(faults)} faults")
    return 1 if faults else 0


def main():
    if sys.argv[1] == "--architectures":
        print(*sorted({f"{'sm' if kind == 2 else 'compute'}_{arch}" for kind, arch, *_ in entries(sys.argv[2])}))
        return 0
    module, version, *more = sys.argv[1:]
    if "--list" not in more:
        check_age(module)
    try:
        found = list(instances(module))
    except Unreadable as error:
        skip(str(error))
    except FileNotFoundError as error:
        skip(f"{error.filename} is not installed")
    if "--list" in more:
        for file, _, name, numbers in found:
            print(file, name, *(f"{k} {v}" for k, v in numbers.items()))
        return 0
    rows, narrower = summary(found)
    if "--write" in more:
        write_table(version, rows, read_table()[2] if os.path.exists(TABLE) else {})
        return 0
    return compare(version, rows, narrower)


sys.exit(main())
