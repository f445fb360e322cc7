#!/usr/bin/env python3
"""Makes stand-ins for the libraries of the system, against which programs are linked that run on older systems.

    stubs.py FOLDER FLOOR… -- LIBRARY…

FLOOR is the newest version of a family that may be used (GLIBC_2.28 GLIBCXX_3.4.25). The stand-in of a LIBRARY goes to
FOLDER under its own name. It has the symbols of the library without their code: each in the newest version that is not
above the floor, and none that has no such version. The linker then asks for these versions, which newer systems have
as well.
"""

import pathlib
import re
import subprocess
import sys

from versions import family, floors_of, is_allowed, number


def symbols_of(library, floors):
    """Returns {version: [(name, type, size)]}: each symbol once."""
    text = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True).stdout
    best = {}
    for line in text.splitlines():
        found = re.match(r" *\d+: \w+ +(\w+) (\w+) +(GLOBAL|WEAK|UNIQUE) +\w+ +(?!UND)\w+ ([^@\s]+)@@?(\S+)$", line)
        if not found:
            continue
        size, kind, _, name, version = found.groups()
        if name == version or family(version) not in floors or not is_allowed(version, floors):
            continue
        if name not in best or number(version) > number(best[name][0]):
            best[name] = (version, kind, int(size, 0))
    nodes = {}
    for name, (version, kind, size) in sorted(best.items()):
        nodes.setdefault(version, []).append((name, kind, size))
    return nodes


def soname_of(library):
    text = subprocess.run(["readelf", "--dynamic", "--wide", library], check=True, capture_output=True, text=True).stdout
    return re.search(r"\(SONAME\).*\[(.*)\]", text).group(1)


def assembly(nodes):
    """Data has its size, which a program that copies it reserves."""
    sections = {"FUNC": ".text", "IFUNC": ".text", "TLS": '.section .tbss,"awT",@nobits'}
    lines = []
    for symbols in nodes.values():
        for name, kind, size in symbols:
            shown = {"FUNC": "function", "IFUNC": "function", "TLS": "tls_object"}.get(kind, "object")
            lines += [sections.get(kind, ".bss"), f'.globl "{name}"', f'.type "{name}",@{shown}', f'"{name}": .zero {size or 8}',
                      f'.size "{name}",{size}']
    return "\n".join(lines) + '\n.section .note.GNU-stack,"",@progbits\n'


def make_stub(folder, library, floors):
    nodes = symbols_of(library, floors)
    soname = soname_of(library)
    source, script = folder / f"{soname}.s", folder / f"{soname}.map"
    source.write_text(assembly(nodes))
    script.write_text("".join(
        version + " {\n" + "".join(f'  "{name}";\n' for name, _, _ in nodes[version]) + "};\n"
        for version in sorted(nodes, key=lambda each: (family(each), number(each)))))
    subprocess.run(["clang-19", "-shared", "-nostdlib", "-fuse-ld=lld", source, f"-Wl,-soname,{soname}", "-o", folder / soname,
                    *([f"-Wl,--version-script,{script}"] if nodes else [])], check=True)


def main(arguments):
    at = arguments.index("--")
    folder, floors = pathlib.Path(arguments[0]), floors_of(arguments[1:at])
    folder.mkdir(parents=True, exist_ok=True)
    for library in arguments[at + 1:]:
        make_stub(folder, library, floors)


if __name__ == "__main__":
    main(sys.argv[1:])
