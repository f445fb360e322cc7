#!/usr/bin/env python3
"""Commands that pages name exist, with their options: programs of the build, commands of lockstep, scripts of the tree,
tests by their names, steps of the bundle for GPUs. So do the functions and classes that pages about the tree name.

    named_commands_test.py TREE BUILD LOCKSTEP PAGE…
"""
import functools
import importlib.util
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TREE, BUILD, LOCKSTEP = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
PLACEHOLDER = re.compile(r"[…*<>{}]|(^|/|_)[A-Z]{2,}[A-Z_]*(\.|/|_|$)")
OF_TREE = ("tools/", "tests/", "benchmarks/", "scripts/", "examples/", "cmake/", "docs/")

# A page with every kind of mistake, and what must be said about it.
WRONG = """
Run `tools/frobnicate`, or `tools/package --frob`, and look at `tests/no_such_test.py`.

```sh
build/release/bin/no_program 50
lockstep frob --help       # a comment
lockstep run --frob FILE.cpp
ctest --test-dir build/release -R '^nosuchtest\\.'
./run --only device.no_such_step
lockstep-setup --frob
```

```cpp
lockstep frob();   // C++, no command
```
"""
EXPECTED = ["tools/frobnicate", "--frob", "tests/no_such_test.py", "no_program", "frob", "--frob", "nosuchtest",
            "device.no_such_step", "--frob"]


PAGES_OF_TREE = ("architecture.md", "protocol.md", "thread-model.md", "waits.md")
WRONG_NAMES = "`CellRunner::frobnicate`, `CellRunner::serve(cell)`, `frob_all`, `Frobnicator::run`, `picture_of`"
EXPECTED_NAMES = ["CellRunner::frobnicate", "frob_all", "Frobnicator::run"]


@functools.lru_cache(maxsize=None)
def words():
    """The words of the sources, and those beside each class: of the files that define it, or behind `Class::`."""
    all_words, of_classes = set(), {}
    for path in TREE.rglob("*"):
        if path.suffix not in (".cpp", ".h", ".py", ".txt", ".cmake") or path.relative_to(TREE).parts[0] == "build":
            continue
        if path.samefile(__file__):
            continue
        text = path.read_text(errors="replace")
        found = set(re.findall(r"\w+", text))
        all_words |= found
        for name in set(re.findall(r"\b(?:class|struct) (?:\w+::)*(\w+)", text)):
            of_classes.setdefault(name, set()).update(found)
        for name, member in set(re.findall(r"\b(\w+)::(\w+)", text)):
            of_classes.setdefault(name, set()).add(member)
    return all_words, of_classes


def missing_names(page):
    """Names of C++ and Python, `Class::member` or with an underscore, that no source has."""
    all_words, of_classes = words()
    for span in re.findall(r"`([^`\n]+)`", page):
        name = re.fullmatch(r"(?:(?:\w+::)*(\w+)::)?(\w+)(?:\(.*\))?", span)
        if not name or span.startswith("std::") or not (name[1] or "_" in name[2].strip("_")):
            continue
        known = of_classes.get(name[1], ()) if name[1] else all_words
        if name[2] not in known and f"lib{name[2]}" not in known:
            yield span


@functools.lru_cache(maxsize=None)
def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          stdin=subprocess.DEVNULL).stdout.decode("utf-8", "replace")


@functools.lru_cache(maxsize=None)
def programs():
    """Programs that the tree builds."""
    found = set()
    for path in TREE.rglob("CMakeLists.txt"):
        if path.relative_to(TREE).parts[0] == "build":
            continue
        text = path.read_text()
        found.update(re.findall(r"add_executable\(\s*([\w-]+)", text))
        found.update(re.findall(r"OUTPUT_NAME ([\w-]+)", text))
    return found


@functools.lru_cache(maxsize=None)
def commands():
    return set(re.findall(r"^  (\w+)  ", output_of(LOCKSTEP, "--help").partition("ubcommands:")[2], re.M))


@functools.lru_cache(maxsize=None)
def steps():
    """Names of the steps of a bundle with all that tools/gpu-bundle packs, on a machine with a GPU."""
    spec = importlib.util.spec_from_file_location("bundle_run", TREE / "tools" / "gpu_bundle" / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    with tempfile.TemporaryDirectory() as folder:
        run.HERE = folder
        for script in TREE.glob("scripts/*/*.cpp"):
            path = pathlib.Path(folder, "sessions", script.stem + ".lockstep")
            path.parent.mkdir(exist_ok=True)
            path.touch()
        for program, where in re.findall(r"lockstep_gpu_bundle\((\w+) (\w+)\)", "".join(
                path.read_text() for path in TREE.glob("*/*/CMakeLists.txt"))):
            path = pathlib.Path(folder, where, program)
            path.parent.mkdir(exist_ok=True)
            path.touch(mode=0o755)
        found = {"devices": [{}, {}], "no_plugin": None, "python": "python3", "no_python": None}
        return [step.name for step in run.make_steps(found, folder)]


def texts_of(page):
    """Code of the page that may be commands: spans, indented lines, and lines of blocks without a language or of sh."""
    language = None
    for line in page.splitlines():
        fence = re.match(r"\s*```(\S*)", line)
        if fence:
            language = fence.group(1) if language is None else None
            continue
        if language is None:
            yield from re.findall(r"`([^`]+)`", line)
            if line.startswith("    "):
                yield line.strip()
        elif language in ("", "sh"):
            yield re.sub(r"^\$ ", "", line.strip())


def unknown_options(words, text):
    for word in words:
        option = word.split("=")[0]
        if re.match(r"--[a-z][\w-]*$", option) and not re.search(re.escape(option) + r"(?![\w-])", text):
            yield option


def check_words(words):
    """What the command names and is not there."""
    name, rest = words[0], words[1:]
    for word in words:
        if word.startswith(OF_TREE) and not PLACEHOLDER.search(word):
            path = word.split(":")[0].split("#")[0].rstrip(",.;")
            if not (TREE / path).exists() and not path.startswith("docs/PAGE"):
                yield path
        program = re.match(r"build/[\w-]+/bin/([\w-]+)$", word)
        if program and program.group(1) not in programs():
            yield program.group(1)
    if re.fullmatch(r"build/[\w-]+/bin/lockstep", name):
        name = "lockstep"
    if name.startswith(("tools/", "tests/", "benchmarks/")) and (TREE / name).is_file():
        yield from unknown_options(rest, (TREE / name).read_text(errors="replace"))
    elif name == "lockstep-setup" or name.endswith("/bin/lockstep-setup"):
        yield from unknown_options(rest, (TREE / "tools/lockstep-setup").read_text())
    elif name == "lockstep" and rest:
        if rest[0] in commands():
            own = rest[1:rest.index("--")] if "--" in rest else rest[1:]  # a launcher has options of its own
            yield from unknown_options(own, output_of(LOCKSTEP, rest[0], "--help-all")
                                       + output_of(LOCKSTEP, rest[0], "--help"))
        elif rest[0].startswith("-"):
            yield from unknown_options(rest, output_of(LOCKSTEP, "--help"))
        elif re.fullmatch(r"[a-z]+", rest[0]):
            yield rest[0]
    elif name == "./run":
        yield from unknown_options(rest, (TREE / "tools/gpu_bundle/run.py").read_text())
        if "--only" in rest:
            wanted = rest[rest.index("--only") + 1]
            if not any(re.search(wanted, step) for step in steps()):
                yield wanted
    elif name == "ctest" and "-R" in rest:
        wanted = rest[rest.index("-R") + 1]
        if not PLACEHOLDER.search(wanted) and "Total Tests: 0" in output_of(
                "ctest", "--test-dir", str(BUILD), "-N", "-R", wanted):
            yield wanted


def missing_in(page):
    for text in texts_of(page):
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            continue
        if words:
            yield from check_words(words)


def main():
    failures = 0
    found = list(missing_in(WRONG))
    if [text.replace("^", "").replace("\\.", "") for text in found] != EXPECTED:
        print(f"of a page with mistakes, these are found: {found}")
        failures += 1
    if list(missing_names(WRONG_NAMES)) != EXPECTED_NAMES:
        print(f"of a page with wrong names, these are found: {list(missing_names(WRONG_NAMES))}")
        failures += 1
    for page in sys.argv[4:]:
        text = pathlib.Path(page).read_text()
        names = missing_names(text) if pathlib.Path(page).name in PAGES_OF_TREE else ()
        for name in [*missing_in(text), *names]:
            print(f"{page}: {name} does not exist")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
