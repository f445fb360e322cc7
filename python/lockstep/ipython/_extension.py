"""The magics of `%load_ext lockstep`. They pass their lines and cells on to the session's magics of the same names."""

from __future__ import annotations

import atexit
import importlib
import re
import sys
from typing import Any

from lockstep.core.errors import LockstepError
from lockstep.ipython._kernel import Kernel

# What the session knows, by how it is written. %dist_init and %dist_mode mean something to this side, too.
_LINES = ("abort", "check", "collectives", "data", "dist_reset", "dist_status", "grads", "hang", "interrupt", "memory",
          "nan", "ranks", "restart", "stack", "sync", "verify", "cpp", "rank")
_CELLS = ("check", "cpp", "distributed", "rank")
# IPython has magics of these names, too: they are its own where cells run there.
_BOTH = (("debug", "line"), ("reset", "line"), ("run", "line"), ("time", "line"), ("timeit", "line"), ("who", "line"),
         ("time", "cell"), ("timeit", "cell"))
_MODE_WORDS = {"-e": True, "--enable": True, "-d": False, "--disable": False}


class CellFailed(Exception):
    """A cell has failed on a rank, and its error has been shown."""

    def _render_traceback_(self) -> list[str]:
        return []


class Extension:
    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.kernel: Kernel | None = None
        self.is_distributed = False  # cells without a magic run on the ranks
        self.own_magics: dict[tuple[str, str], Any] = {}  # of IPython, which this extension has replaced
        self._is_local = False  # within %%local

    # ---- Magics ------------------------------------------------------------------------------------------------------

    def dist_init(self, line: str) -> None:
        """%dist_init [-n N] [--gpu-ids L] [--backend B] … starts the ranks. From then on cells run on all of them."""
        if self._session() is None:
            self.kernel = Kernel(["--python=" + sys.executable])
        self._run("%dist_init " + line)
        self.is_distributed = True

    def dist_mode(self, line: str) -> None:
        """%dist_mode [-e|-d]: cells without a magic run on all ranks, or here."""
        word = line.strip()
        if word and word not in _MODE_WORDS:
            raise LockstepError(f"%dist_mode {word}: say -e (cells run on the ranks) or -d (cells run here)")
        self.is_distributed = _MODE_WORDS.get(word, self.is_distributed)
        where = "all ranks" if self.is_distributed else "this kernel alone; %%distributed, on all ranks"
        print(f"cells run on {where}")

    def dist_shutdown(self, line: str) -> None:
        """%dist_shutdown ends the ranks."""
        self.is_distributed = False
        if self.kernel is None:
            print("no ranks are running")
            return
        self.kernel.close()
        self.kernel = None
        print("the ranks have ended")

    def local(self, line: str, cell: str) -> None:
        """%%local: this cell runs here, whatever %dist_mode says."""
        self._is_local = True
        try:
            result = self.shell.run_cell(cell, store_history=False)
        finally:
            self._is_local = False
        if not result.success:
            raise CellFailed("the cell has failed")

    def pass_line(self, name: str, line: str) -> None:
        self._run(f"%{name} {line}")

    def pass_cell(self, name: str, line: str, cell: str) -> None:
        self._run(f"%%{name} {line}\n{cell}" if name != "distributed" else cell)

    # ---- The session -------------------------------------------------------------------------------------------------

    def _session(self) -> Kernel | None:
        if self.kernel is not None and not self.kernel.is_alive:
            self.kernel.close()
            self.kernel = None
        return self.kernel

    def _run(self, code: str) -> None:
        kernel = self._session()
        if kernel is None:
            raise LockstepError("no ranks are running: %dist_init -n 2 starts them")
        reply = kernel.execute(code, self._show, input if self._has_person() else None)
        if reply["status"] != "ok":
            raise CellFailed(reply.get("evalue", ""))

    def _has_person(self) -> bool:
        """Whether input() asks somebody."""
        kernel = getattr(self.shell, "kernel", None)
        if kernel is not None:
            return bool(getattr(kernel, "_allow_stdin", False))
        return sys.stdin is not None and sys.stdin.isatty()

    def _show(self, kind: str, content: dict[str, Any]) -> None:
        display: Any = importlib.import_module("IPython.display")  # which need not be installed for the rest
        if kind == "stream":
            (sys.stderr if content["name"] == "stderr" else sys.stdout).write(content["text"])
        elif kind in ("execute_result", "display_data", "update_display_data"):
            transient = content.get("transient") or {}
            known = {"update": True} if kind == "update_display_data" else {}
            display.publish_display_data(content["data"], content.get("metadata") or {}, transient=transient, **known)
        elif kind == "clear_output":
            display.clear_output(wait=content.get("wait", False))
        elif kind == "error":
            sys.stderr.write("\n".join(content["traceback"]) + "\n")

    def close(self) -> None:
        if self.kernel is not None:
            self.kernel.close()
            self.kernel = None

    # ---- Cells without a magic ---------------------------------------------------------------------------------------

    def transform(self, lines: list[str]) -> list[str]:
        """For input_transformers_cleanup: turns a cell that runs on the ranks into one of %%distributed."""
        code = [index for index, each in enumerate(lines) if each.strip() and not each.lstrip().startswith("#")]
        if not code:
            return lines
        first = lines[code[0]]
        named = re.match(r"%%(\w+)", first)
        if named and named[1] in (*_CELLS, "local"):  # comments may come first, and a blank may be missing
            return [re.sub(r"^%%rank\s*\[", "%%rank [", first), *lines[: code[0]], *lines[code[0] + 1 :]]
        return ["%%distributed\n", *lines] if self.is_on_ranks and not re.match(r"\s*(%|!|.*\?\s*$)", first) else lines

    @property
    def is_on_ranks(self) -> bool:
        """Whether cells without a magic run on the ranks."""
        return self.is_distributed and self.kernel is not None and not self._is_local

    def complete(self, text: str) -> list[str]:
        """Names of the ranks, for IPython's completer."""
        kernel = self._session()
        if not self.is_distributed or kernel is None:
            return []
        line = self.shell.Completer.text_until_cursor
        found = kernel.complete(line, len(line))
        if found.get("status") != "ok" or not found["matches"]:
            return []
        typed = len(line) - found["cursor_start"]
        if typed > len(text):
            return []
        return [text[: len(text) - typed] + each for each in found["matches"]]


_loaded: Extension | None = None


def load(shell: Any) -> None:
    global _loaded
    if _loaded is not None:
        return
    extension = _loaded = Extension(shell)
    for name in ("dist_init", "dist_mode", "dist_shutdown"):
        shell.register_magic_function(getattr(extension, name), "line", name)
    shell.register_magic_function(extension.local, "cell", "local")
    for name in _LINES:
        shell.register_magic_function(_line_of(extension, name), "line", name)
    for name in _CELLS:
        shell.register_magic_function(_cell_of(extension, name), "cell", name)
    for name, kind in _BOTH:
        extension.own_magics[name, kind] = shell.find_magic(name, kind)
        both = _line_of_both if kind == "line" else _cell_of_both
        shell.register_magic_function(both(extension, name), kind, name)
    shell.input_transformers_cleanup.append(extension.transform)
    shell.Completer.custom_matchers.append(extension.complete)
    atexit.register(extension.close)
    print("%dist_init -n 2 starts ranks; then cells run on all of them, %%rank SPEC on some, %%local here")


def unload(shell: Any) -> None:
    global _loaded
    if _loaded is None:
        return
    extension, _loaded = _loaded, None
    extension.close()
    extension.is_distributed = False
    for (name, kind), magic in extension.own_magics.items():
        shell.register_magic_function(magic, kind, name)
    shell.input_transformers_cleanup.remove(extension.transform)
    shell.Completer.custom_matchers.remove(extension.complete)


def _line_of(extension: Extension, name: str) -> Any:
    def magic(line: str) -> None:
        extension.pass_line(name, line)

    magic.__doc__ = f"%{name} of the session of ranks; %{name}? there has its help"
    return magic


def _line_of_both(extension: Extension, name: str) -> Any:
    def magic(line: str) -> None:
        if extension.is_on_ranks:
            extension.pass_line(name, line)
        else:
            extension.own_magics[name, "line"](line)

    magic.__doc__ = f"%{name}: of the ranks where cells run there, else of this kernel"
    return magic


def _cell_of_both(extension: Extension, name: str) -> Any:
    def magic(line: str, cell: str) -> None:
        if extension.is_on_ranks:
            extension.pass_cell(name, line, cell)
        else:
            extension.own_magics[name, "cell"](line, cell)

    magic.__doc__ = f"%%{name}: of the ranks where cells run there, else of this kernel"
    return magic


def _cell_of(extension: Extension, name: str) -> Any:
    def magic(line: str, cell: str) -> None:
        extension.pass_cell(name, line, cell)

    magic.__doc__ = f"%%{name}: the cell runs on ranks"
    return magic
