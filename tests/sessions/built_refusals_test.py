#!/usr/bin/env python3
"""Built files that can't run, or whose views are not those of the run, say why and what to do.

    built_refusals_test.py LOCKSTEP
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from built_test import run, without_compiler  # noqa: E402

LOCKSTEP = sys.argv[1]
failures = []

VIEWS = """// %% the first
int loss = 7;
int other = 1;
// %% ends early on rank 1{tags}
if (rank == 1) throw std::runtime_error("early");
int loss = 8;
// %% mentions nothing of it
other + 1
// %% mentions it
loss + 1
"""


# What magics ask the compiler, beside objects of cells.
MAGICS = """// %%
set_seed(1);
int answer = 42;
auto net = torch::nn::Linear(2, 2);
// %%
%who
answer?
%verify net
// %%
%%writefile {folder}/part.h
inline int twice(int k) {{ return 2 * k; }}
// %%
#include "{folder}/part.h"
twice(answer)
// %%
%nan on
// %%
auto loss = net->forward(torch::ones({{1, 2}})).sum();
loss.backward();
%grads net --local
// %%
%nan off
%reset answer
int answer = 1;
// %%
show(answer);
!echo from a command
%undo
%who
// %%
%rank 0 int alone = 3;
// %%
%%rank 0
alone + 1
// %%
%%nan
auto bad = torch::zeros(2) / torch::zeros(2);
// %%
%dist_reset
// %%
auto again = torch::ones(2);
%verify again
// %%
again.numel()
// %%
_ + 1
"""


def expect(what, result, code, *parts):
    text, seen = result
    missing = [part for part in parts if part not in " ".join(text.split())]
    if seen != code or missing:
        failures.append(f"{what}: exit code {seen}, expected {code}; missing {missing} in:\n{text}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "prefix").mkdir()
        bare = without_compiler(LOCKSTEP, folder / "prefix")

        def script(text, file="script.cpp"):
            (folder / file).write_text(text)
            return str(folder / file)

        def build(text, *options):
            path = script(text)
            return run([LOCKSTEP, "build", path, "-o", str(folder / "script.lockstep"), *options])

        def run_built(*options):
            return run([bare, "run", str(folder / "script.lockstep"), *options], XDG_CACHE_HOME=str(folder / "cache"))

        # What does not compile is not written.
        expect("a wrong cell", build("int x = befor;\n"), 1, "script.cpp:1: cell 1", "undeclared identifier 'befor'",
               "1 of 1 cell does not compile", "is not written")
        if (folder / "script.lockstep").exists():
            failures.append("a file was written though a cell does not compile")

        # Views.
        untagged, tagged = VIEWS.format(tags=""), VIEWS.format(tags=' tags=["raises-exception"]')
        expect("build", build(untagged, "-n", "2"), 0, "4 cells for 2 ranks")
        built = (folder / "script.lockstep").read_bytes()
        expect("a view that the file has not", run_built("--keep-going"), 1, "0-1 = 2",
               "has no object for this cell: it depends on 'loss', which is not the same here",
               "rank 1", "raises-exception")
        for what, ranks in (("a tagged cell", "2"), ("more ranks than in the build", "3")):
            expect(what, build(tagged), 0)
            seen = run_built("-n", ranks)
            wanted = run([LOCKSTEP, "run", str(folder / "script.cpp"), "-n", ranks])
            if seen != wanted:
                failures.append(f"{what}: the script ends with {wanted[1]} and shows\n{wanted[0]}\n"
                                f"the file with {seen[1]} and\n{seen[0]}")

        # -n of the build is that of the run.
        expect("build -n 3", build("world_size", "-n", "3"), 0)
        expect("-n is kept", run_built(), 0, "0-2 = 3")

        # A cell magic names the ranks.
        expect("build %%nan", build("%%nan\nauto t = torch::ones(2);\n", "-n", "2"), 0)
        expect("%%nan on as many ranks", run_built(), 0)
        expect("%%nan on more ranks", run_built("-n", "3"), 1, "the file was built for 2")

        # An assertion of a cell is one, whatever folder the build had.
        expect("build assert()", build("#include <cassert>\nassert(rank == 7);\n"), 0)
        expect("assert()", run_built(), 5, "the assertion `rank == 7` failed")

        # Magics.
        expect("build magics", build(MAGICS.format(folder=folder), "-n", "2"), 0)
        if not (folder / "part.h").exists():
            failures.append("%%writefile wrote nothing in the build, so later cells could not include its file")
        options = ["-n", "2", "--keep-going"]
        seen = run_built(*options)
        wanted = run([LOCKSTEP, "run", str(folder / "script.cpp"), *options])
        if seen != wanted:
            failures.append(f"magics: the script ends with {wanted[1]} and shows\n{wanted[0]}\n"
                            f"the file with {seen[1]} and\n{seen[0]}")
        expect("build %%timeit", build("%%timeit\nint k = 0; k += 1;\n"), 0)
        expect("%%timeit", run_built(), 0, "loops each")

        # Files that do not fit, and are no files.
        (folder / "script.lockstep").write_bytes(built[:-1])
        expect("a file that is cut off", run_built(), 2, "cut off")
        (folder / "script.lockstep").write_bytes(built[:-1] + bytes([built[-1] ^ 1]))
        expect("a damaged file", run_built(), 2, "checksum")
        (folder / "script.lockstep").write_bytes(b"")
        expect("an empty file", run_built(), 2, "script.lockstep: ")
        (folder / "script.lockstep").write_bytes(built)
        expect("with a script", run([bare, "run", str(folder / "script.lockstep"), script("1", "more.cpp")]), 2, "run alone")
        expect("-I", run_built("-I", "."), 2, "give the option to lockstep build")
        expect("--debug-cells", run_built("--debug-cells"), 2, "give the option to lockstep build")
        installed = folder / "prefix" / "lib" / "lockstep"
        for file, words in (("headers.digest", "other headers"), ("libtorch.version", "built for LibTorch")):
            kept = (installed / file).read_text()
            (installed / file).write_text("2.99.0\n")
            expect(f"another {file}", run_built(), 2, words)
            (installed / file).write_text(kept)
        expect("the file is as it was", run_built(), 1, "early")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
