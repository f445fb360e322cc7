#!/usr/bin/env python3
"""Completes a folder of programs for machines that lack Debian's packages: copies the libraries that they need into its
lib/, where each looks for others beside itself, and reports what the folder needs of a system.

    libraries.py FOLDER LIBTORCH     prints a JSON object: {"GLIBC": "2.35", "GLIBCXX": "3.4.30", ..., "systems": [...]}

Not copied: glibc, libstdc++ and libgcc, which the system has and LibTorch uses as well; LibTorch, CUDA and NCCL, which
are in the wheels of torch; the driver's libraries.
"""
import json
import os
import re
import shutil
import subprocess
import sys

OF_SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so(\..*)?$")
OF_WHEELS = re.compile(r"^lib(torch|c10|shm|gomp|cud|cublas|cufft|curand|cusolver|cusparse|cupti|nccl|nvrtc|nvJitLink|"
                       r"nvToolsExt|nvshmem|caffe2|nvidia-ml).*\.so(\..*)?$")
# What systems have at least: glibc, and GLIBCXX of libstdc++.
SYSTEMS = (("RHEL 9", "2.34", "3.4.29"), ("Ubuntu 22.04", "2.35", "3.4.30"), ("Debian 12", "2.36", "3.4.30"),
           ("Ubuntu 24.04", "2.39", "3.4.33"), ("RHEL 10", "2.39", "3.4.33"), ("Debian 13", "2.41", "3.4.33"))


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode("utf-8", "replace")


def elf_files(folder):
    for path, _, names in os.walk(folder):
        for name in sorted(names):
            file = os.path.join(path, name)
            if os.path.islink(file):
                continue
            with open(file, "rb") as opened:
                if opened.read(4) == b"\x7fELF":
                    yield file


def dynamic(file, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", output_of("readelf", "-dW", file))


def known_libraries():
    text = output_of("/sbin/ldconfig", "-p")
    known = {}
    for name, path in re.findall(r"^\s*(\S+) \(libc6,x86-64[^)]*\) => (\S+)$", text, re.M):
        known.setdefault(name, path)
    return known


def key(version):
    return [int(part) for part in version.split(".")]


def requirements_of(files):
    most = {}
    for file in files:
        symbols = output_of("objdump", "-Tw", file)
        for family, version in re.findall(r"\((GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)\)", symbols):
            if family not in most or key(version) > key(most[family][0]):
                most[family] = (version, file)
    return most


def main():
    folder, libtorch = sys.argv[1], sys.argv[2]
    libraries = os.path.join(folder, "lib")
    wheels = {os.path.join(libtorch, "lib")}
    beside = os.path.join(os.path.dirname(libtorch), "nvidia")
    if os.path.isdir(beside):
        wheels |= {os.path.join(beside, each, "lib") for each in os.listdir(beside)}
    known = known_libraries()
    left = list(elf_files(folder))
    while left:
        file = left.pop()
        for name in dynamic(file, "NEEDED"):
            there = os.path.join(libraries, name)
            if os.path.exists(there) or OF_SYSTEM.match(name) or OF_WHEELS.match(name):
                continue
            if any(os.path.exists(os.path.join(each, name)) for each in wheels):
                continue
            if name not in known:
                sys.exit(f"error: {file} needs {name}, which is not on this machine")
            shutil.copy(os.path.realpath(known[name]), there)
            os.chmod(there, 0o755)
            subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", there], check=True)
            left.append(there)
    for file in elf_files(folder):
        for path in dynamic(file, "RPATH") + dynamic(file, "RUNPATH"):
            if not all(part.startswith("$ORIGIN") for part in path.split(":") if part):
                sys.exit(f"error: {file} looks for libraries in {path}, which is a folder of this machine")
    most = requirements_of(elf_files(folder))
    result = {family: version for family, (version, _) in sorted(most.items())}
    result["systems"] = [name for name, glibc, glibcxx in SYSTEMS
                         if key(glibc) >= key(result.get("GLIBC", "0")) and
                         key(glibcxx) >= key(result.get("GLIBCXX", "0"))]
    for family, (version, file) in sorted(most.items()):
        print(f"needs {family}_{version}: {os.path.relpath(file, folder)}", file=sys.stderr)
    print(f"runs on {', '.join(result['systems']) or 'none of the systems that are known'}", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
