"""tools/notebooks: session scripts to Jupyter notebooks and back, by jupytext (which the caller has)."""

import os
import re
import sys

import jupytext
import nbformat

# Magics stay as they stand: Lockstep reads them bare and after `// `.
FORMAT = {"extension": ".cpp", "format_name": "percent", "comment_magics": False}
KERNEL = {"display_name": "Lockstep (C++20)", "language": "c++", "name": "lockstep"}


def notebook_of(script):
    """The notebook of a script's text. The comments before its first cell are a markdown cell of their own kind."""
    head, cells = split_head(script)
    notebook = jupytext.reads(cells, FORMAT)
    if head:
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(head, metadata={"lockstep": "head"}))
    notebook.metadata["kernelspec"] = KERNEL
    notebook.metadata["language_info"] = {"name": "c++", "file_extension": ".cpp", "mimetype": "text/x-c++src"}
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells):  # the same ids each time, so that diffs show what has changed
        cell["id"] = f"cell-{number}"
    return notebook


def script_of(notebook):
    notebook = nbformat.from_dict(notebook)
    head = ""
    if notebook.cells and notebook.cells[0].metadata.get("lockstep") == "head":
        head = notebook.cells.pop(0).source
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", ()):
            cell["cell_type"] = "removed"
    notebook.cells = [cell for cell in notebook.cells if cell["cell_type"] != "removed"]
    notebook.metadata = nbformat.from_dict({"jupytext": {"comment_magics": False, "cell_metadata_filter": "all", "notebook_metadata_filter": "-all",
                                                         "main_language": "c++"}})
    # jupytext names the encoding of text that is not ASCII; ours is UTF-8 always.
    return head + jupytext.writes(notebook, FORMAT).removeprefix("// -*- coding: utf-8 -*-\n").removeprefix("\n")


def split_head(script):
    """What stands before the first `// %%`, and the rest."""
    begin = re.search(r"^// %%(?=\s|$)", script, re.MULTILINE)
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
        stem = os.path.splitext(os.path.basename(path))[0]
        if mode == "back":
            target, result = os.path.splitext(path)[0] + ".cpp", script_of(nbformat.reads(text, as_version=4))
        else:
            notebook = notebook_of(text)
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
