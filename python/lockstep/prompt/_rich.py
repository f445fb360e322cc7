"""The HTML and the pictures that values have in a notebook beside their text, as in IPython."""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

_METHODS = (
    ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"), ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"),
)
_LONGEST = 1 << 23  # characters of a form


def forms_of(value: Any) -> dict[str, Any] | None:
    """Text by MIME type, bytes in base64; None where the value has no such form."""
    if isinstance(value, type):
        return None
    bundle = getattr(value, "_repr_mimebundle_", None)
    if callable(bundle):
        found = bundle()
        found = found[0] if isinstance(found, tuple) else found
        if found:
            return {kind: _text(each) for kind, each in found.items() if kind != "text/plain"}
    forms = {}
    for kind, name in _METHODS:
        method = getattr(value, name, None)
        found = method() if callable(method) else None
        if found is not None:
            forms[kind] = _text(found[0] if isinstance(found, tuple) else found)
    if not forms and _is_figure(value):
        forms["image/png"] = _text(_png_of(value))
    return {kind: each for kind, each in forms.items() if len(each) <= _LONGEST} or None


def _text(form: Any) -> Any:
    return base64.b64encode(form).decode("ascii") if isinstance(form, bytes) else form


def _is_figure(value: Any) -> bool:
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


def _png_of(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


def open_figures() -> list[Any]:
    """Figures of pyplot that the cell has drawn. They are closed: the next cell draws new ones."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")
    return figures
