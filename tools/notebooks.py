"""tools/notebooks: session scripts to Jupyter notebooks and back, by jupytext (which the caller has)."""

import os
import re
import sys

import jupytext
import nbformat

KERNELS = {".cpp": {"display_name": "Lockstep (C++20)", "language": "c++", "name": "lockstep"},
           ".py": {"display_name": "Python 3", "language": "python", "name": "python3"}}
INFO = {".cpp": {"name": "c++", "file_extension": ".cpp", "mimetype": "text/x-c++src"},
        ".py": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}}
MARKERS = {".cpp": "// %%", ".py": "# %%"}


def format_of(extension):
    """Magics stay as they stand: Lockstep reads them bare and in comments."""
    return {"extension": extension, "format_name": "percent", "comment_magics": False}


def title_line(cell, extension):
    """What a notebook shows of the title of a cell, which it keeps in the metadata: a comment above the code. A comment
    that begins with % would be a magic."""
    title = cell.metadata.get("title", "")
    is_shown = cell.cell_type == "code" and cell.source and title and not title.startswith("%")
    return f"{MARKERS[extension].split()[0]} {title}\n" if is_shown else ""


def notebook_of(script, extension):
    """The notebook of a script's text. The comments before its first cell are a markdown cell of their own kind."""
    head, cells = split_head(script, MARKERS[extension])
    notebook = jupytext.reads(cells, format_of(extension))
    for cell in notebook.cells:
        cell.source = title_line(cell, extension) + cell.source
    if head:
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(head, metadata={"lockstep": "head"}))
    notebook.metadata["kernelspec"] = KERNELS[extension]
    notebook.metadata["language_info"] = INFO[extension]
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells):  # the same ids each time, so that diffs show what has changed
        cell["id"] = f"cell-{number}"
    return notebook


def extension_of(notebook):
    """That of the script of a notebook, by the language of its kernel."""
    language = notebook.metadata.get("kernelspec", {}).get("language") or notebook.metadata.get("language_info", {}).get("name")
    return ".py" if language == "python" else ".cpp"


def script_of(notebook):
    notebook = nbformat.from_dict(notebook)
    extension = extension_of(notebook)
    head = ""
    if notebook.cells and notebook.cells[0].metadata.get("lockstep") == "head":
        head = notebook.cells.pop(0).source
    for cell in notebook.cells:
        cell.source = cell.source.removeprefix(title_line(cell, extension))
        if "injected-parameters" in cell.metadata.get("tags", ()):
            cell["cell_type"] = "removed"
    notebook.cells = [cell for cell in notebook.cells if cell["cell_type"] != "removed"]
    notebook.metadata = nbformat.from_dict({"jupytext": {"comment_magics": False, "cell_metadata_filter": "all", "notebook_metadata_filter": "-all",
                                                         "main_language": INFO[extension]["name"]}})
    # jupytext names the encoding of text that is not ASCII; ours is UTF-8 always.
    text = jupytext.writes(notebook, format_of(extension))
    return head + text.removeprefix(f"{MARKERS[extension].split()[0]} -*- coding: utf-8 -*-\n").removeprefix("\n")


def split_head(script, marker):
    """What stands before the first cell, and the rest."""
    begin = re.search(rf"^{marker}(?=\s|$)", script, re.MULTILINE)
    if not begin:
        return "", script
    return script[:begin.start()], script[begin.start():]


def link_scripts(script, folder):
    """`scripts` in the folder of a notebook: its cells run there, and lessons read scripts/data."""
    scripts = os.path.dirname(os.path.abspath(script))
    while os.path.basename(scripts) != "scripts" and scripts != os.path.dirname(scripts):
        scripts = os.path.dirname(scripts)
    link = os.path.join(folder, "scripts")
    if os.path.isdir(os.path.join(scripts, "data")) and not os.path.lexists(link):
        os.symlink(scripts, link)


def main():
    mode, folder, *paths = sys.argv[1:]
    code = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        stem, extension = os.path.splitext(os.path.basename(path))
        if mode == "back":
            notebook = nbformat.reads(text, as_version=4)
            target, result = os.path.splitext(path)[0] + extension_of(notebook), script_of(notebook)
        elif extension not in MARKERS:
            code = 1
            print(f"{path}: no session script: .cpp, or .py for Python", file=sys.stderr)
            continue
        else:
            notebook = notebook_of(text, extension)
            nbformat.validate(notebook)
            target, result = os.path.join(folder, stem + ".ipynb"), nbformat.writes(notebook) + "\n"
            back = script_of(nbformat.reads(result, as_version=4))
            if back != text:
                code = 1
                print(f"{path}: the notebook does not give the same script back", file=sys.stderr)
                for number, (mine, theirs) in enumerate(zip(text.splitlines(), back.splitlines()), 1):
                    if mine != theirs:
                        print(f"  line {number}: {mine!r} became {theirs!r}", file=sys.stderr)
                        break
                continue
            if mode == "check":
                continue
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(result)
        if mode == "to":
            link_scripts(path, os.path.dirname(target) or ".")
        print(target)
    return code


if __name__ == "__main__":
    sys.exit(main())
