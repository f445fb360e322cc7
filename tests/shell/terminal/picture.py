"""A screen of a terminal, with its colours, as a picture (SVG): svg(text), where text is what tmux captures with -e."""
import html
import re

CELL_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 18, 14
BACKGROUND, FOREGROUND = "#1e1e2a", "#d8d8e0"
COLOURS = {31: "#f07178", 32: "#9ece6a", 33: "#e0af68", 34: "#7aa2f7", 35: "#bb9af7", 36: "#7dcfff"}
ESCAPE = re.compile(r"\x1b\[([\d;]*)m|\x0e|\x0f")


def changed(style, codes):
    """The style after these codes of SGR."""
    style = dict(style)
    for code in [int(each or 0) for each in codes.split(";")]:
        if code == 0:
            style = {}
        elif code in (1, 2, 4, 7):
            style[{1: "bold", 2: "dim", 4: "underlined", 7: "inverse"}[code]] = True
        elif code == 22:
            style.pop("bold", None), style.pop("dim", None)
        elif code in (24, 27):
            style.pop({24: "underlined", 27: "inverse"}[code], None)
        elif code == 39:
            style.pop("colour", None)
        elif code in COLOURS:
            style["colour"] = COLOURS[code]
    return style


def pieces(line, style):
    """Column, text and style of each part of a line; and the style at its end."""
    result, column, at = [], 0, 0
    for match in list(ESCAPE.finditer(line)) + [None]:
        text = line[at:match.start() if match else len(line)]
        if text:
            result.append((column, text, style))
            column += len(text)
        if match:
            at = match.end()
            if match.group(1) is not None:
                style = changed(style, match.group(1))
    return result, style


def svg(screen):
    lines = screen.rstrip("\n").split("\n")
    widest = max(len(ESCAPE.sub("", line)) for line in lines)
    width, height = round(2 * MARGIN + widest * CELL_WIDTH), 2 * MARGIN + len(lines) * LINE_HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="{FOREGROUND}">',
           f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>']
    style = {}
    for row, line in enumerate(lines):
        parts, style = pieces(line, style)
        y = MARGIN + row * LINE_HEIGHT
        for column, text, how in parts:
            if not text.strip() and not how.get("inverse"):
                continue
            x, length = MARGIN + column * CELL_WIDTH, len(text) * CELL_WIDTH
            attributes = ""
            if how.get("inverse"):
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{LINE_HEIGHT}" fill="{FOREGROUND}"/>')
                attributes += f' fill="{BACKGROUND}"'
            elif "colour" in how:
                attributes += f' fill="{how["colour"]}"'
            attributes += ' font-weight="bold"' if how.get("bold") else ""
            attributes += ' opacity="0.6"' if how.get("dim") else ""
            attributes += ' text-decoration="underline"' if how.get("underlined") else ""
            out.append(f'<text x="{x:.1f}" y="{y + 13}" textLength="{length:.1f}" xml:space="preserve"{attributes}>'
                       f'{html.escape(text, quote=False)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
