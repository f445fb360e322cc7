#!/usr/bin/env python3
"""Classes, and functions that are inline or templates, have one definition for each name.

Two translation units of a program may each define a class of one name in one namespace: no program reports it, the
linker keeps one of the functions that both have, and the program ends in the wrong destructor. Names in unnamed
namespaces are a file's own. Reads the sources, so that it sees what a batch of sources (lockstep_unity) or a library
hides.

definitions_test.py ROOT         exits with 1 and names every definition after the first
definitions_test.py --self-test  puts two definitions of one name into a small tree and expects them to be found
"""

import re
import sys
import tempfile
from pathlib import Path

# All of these may meet in one program. Each folder of the others makes programs of its own.
ROOMS = ["protocol", "compiler", "shell", "worker", "collectives", "ddp", "inspectors", "cuda", "python"]
OTHERS = ["tests", "benchmarks", "examples"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
# Programs that do without the file that has the first definition, and bring one of their own.
ALONE = {"tests/compiler/cell_host.cpp"}

TOKEN = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/'
    r'|R"([^()\\\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\''
    r"|^[ \t]*#(?:\\\n|[^\n])*"
    r"|\w[\w']*|::|->|\S", re.DOTALL | re.MULTILINE)
# In front of a class's name, or part of a function's declaration, and no name itself.
WORDS = {"class", "struct", "union", "enum", "final", "const", "constexpr", "consteval", "inline", "static", "extern",
         "typename", "template", "friend", "virtual", "explicit", "volatile", "mutable", "noexcept", "override"}


def tokens_of(text):
    """Pairs of a line's number and a token: no comments, no lines of the preprocessor, and texts as ""."""
    line, at = 1, 0
    for match in TOKEN.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        token = match[0]
        if token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        yield line, '""' if token.endswith('"') and len(token) > 1 else token


def without_brackets(tokens):
    """Without attributes and what stands in alignas() and __attribute__(())."""
    result, i = [], 0
    while i < len(tokens):
        if tokens[i] in ("alignas", "__attribute__", "__asm__", "asm", "requires") and tokens[i + 1 : i + 2] == ["("]:
            i = closing(tokens, i + 1) + 1
        elif tokens[i : i + 2] == ["[", "["]:
            i = closing(tokens, i) + 1
        else:
            result.append(tokens[i])
            i += 1
    return result


def closing(tokens, begin):
    """Where the bracket at `begin` is closed; the last token where it is not."""
    close = {"(": ")", "[": "]", "{": "}"}[tokens[begin]]
    depth = 0
    for i in range(begin, len(tokens)):
        depth += (tokens[i] == tokens[begin]) - (tokens[i] == close)
        if depth == 0:
            return i
    return len(tokens) - 1


def without_template(tokens):
    """Without `template <…>` at the front, of which there may be several."""
    while tokens[:1] == ["template"]:
        depth, i = 0, 1
        while i < len(tokens):
            depth += (tokens[i] == "<") - (tokens[i] == ">")
            i += 1
            if depth == 0:
                break
        tokens = tokens[i:]
    return tokens


def is_word(token):
    return re.fullmatch(r"[A-Za-z_]\w*", token) is not None


def class_name(tokens):
    """The name in `enum class Name` or `class Name final`, with the arguments of a specialisation; None without one."""
    i = max(i for i, token in enumerate(tokens) if token in ("class", "struct", "union", "enum"))
    return "".join(token for token in tokens[i + 1 :] if token != "final") or None


def parameters(tokens):
    """The types of parameters, which tell overloads apart; names and defaults are left out."""
    result, each, depth = [], [], 0
    for token in [*tokens, ","]:
        if token == "," and depth == 0:
            if "=" in each:
                each = each[: each.index("=")]
            is_named = len(each) > 1 and is_word(each[-1]) and each[-1] not in WORDS
            if is_named and (is_word(each[-2]) or each[-2] in "&*>"):
                each = each[:-1]
            result.append(" ".join(each))
            each = []
        else:
            depth += (token in "(<[{") - (token in ")>]}")
            each.append(token)
    return ", ".join(result)


def function_name(tokens):
    """The name with the types of parameters, in `inline int name(int x) const`; None if this is no function."""
    if "operator" in tokens:
        i = tokens.index("operator")
        begin = next((k for k in range(i + 2, len(tokens)) if tokens[k] == "("), None)
    else:
        begin = next((k for k, token in enumerate(tokens) if token == "("), None)
        i = begin - 1 if begin else None
        if begin is None or not is_word(tokens[i]) or "=" in tokens[:begin]:
            return None
    if begin is None:
        return None
    while i >= 2 and tokens[i - 1] == "::":
        i -= 2
    return "".join(tokens[i:begin]) + "(" + parameters(tokens[begin + 1 : closing(tokens, begin)]) + ")"


def definitions(text):
    """Triples of a line's number, "class" or "function", and a qualified name."""
    scopes, head = [], []  # `head`: what stands before a brace
    depth, parentheses = 0, 0  # `depth`: of braces that are no scope here
    for line, token in tokens_of(text):
        if depth > 0:
            depth += (token == "{") - (token == "}")
            if depth == 0 and token == "}":
                head = []
            continue
        parentheses += (token == "(") - (token == ")")
        if token == "}":
            if scopes:
                scopes.pop()
            head = []
        elif token == ";" and parentheses == 0:
            head = []
        elif token != "{" or parentheses > 0:
            head.append(token)
            if token == ")" and parentheses == 0 and head[0].isupper() and head[1:2] == ["("]:
                head = []  # a macro that makes declarations: LOCKSTEP_JSON(…), TEST(…)
        else:
            plain = without_brackets(head)
            declared = without_template(plain)
            before_bases = declared[: declared.index(":")] if ":" in declared else declared
            scope = None  # of names in these braces
            if "namespace" in declared:
                names = [each for each in declared if is_word(each) and each not in ("namespace", "inline")]
                scope = names or [None]
            elif declared[:1] == ["extern"] and declared[1:] == ['""']:
                scope = []
            elif not {"(", "="} & set(before_bases) and {"class", "struct", "union", "enum"} & set(before_bases):
                name = class_name(before_bases)
                if name and not any(None in each for each in scopes):
                    yield line, "class", qualified(scopes, name)
            elif declared and not any(None in each for each in scopes) and "static" not in declared:
                is_shared = plain != declared or {"inline", "constexpr", "consteval"} & set(declared)
                name = function_name(declared) if is_shared else None
                if name:
                    yield line, "function", qualified(scopes, name)
            if scope is None:
                depth = 1
            else:
                scopes.append(scope)
            head = []


def qualified(scopes, name):
    return "::".join([each for scope in scopes for each in scope] + [name])


def sources(root, folder):
    return [path for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file()]


def is_compiled(root, path):
    """Headers, and what the folder's CMakeLists.txt names: scripts of sessions are no translation units."""
    if path.suffix == ".h":
        return True
    for folder in (path.parent, path.parent.parent):
        lists = folder / "CMakeLists.txt"
        name = str(path.relative_to(folder))
        if lists.is_file() and re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w.])", lists.read_text()):
            return str(path.relative_to(root)) not in ALONE
    return False


def repeated(root):
    """A line for each definition of a name that an earlier file has defined, in files that may meet in one program."""
    known = {}  # of the rooms
    for room in ROOMS:
        yield from add(root, sources(root, room), known)
    for folder in OTHERS:
        by_folder = {}
        for path in filter(lambda each: is_compiled(root, each), sources(root, folder)):
            by_folder.setdefault(path.parent, []).append(path)
        for paths in by_folder.values():
            yield from add(root, paths, dict(known))


def add(root, paths, known):
    for path in paths:
        for line, kind, name in definitions(path.read_text(errors="replace")):
            first = known.setdefault((kind, name), (path, line))
            if first[0] != path:
                yield (f"{path.relative_to(root)}:{line}: {kind} {name} is defined in "
                       f"{first[0].relative_to(root)}:{first[1]}, too: one of the two needs another name, or an unnamed "
                       "namespace")


def self_test():
    files = {
        "shell/a.cpp": """
            // struct Twice {};
            namespace lockstep::shell {
            namespace {
            struct Own { int a; };
            inline int helper() { return 'x'; }
            }  // namespace
            const char* const kText = R"(struct Twice {};)";
            LOCKSTEP_JSON(Other, a, b)
            class [[nodiscard]] Twice final : public Base<int(char)> { struct Inner {}; };
            template <typename T> struct Traits;
            template <> struct Traits<int> {};
            enum class Kind { a };
            inline int overloaded(int x) { return x; }
            int strong() { return 1'000; }
            }  // namespace lockstep::shell
        """,
        "shell/b.cpp": """
            namespace lockstep {
            namespace shell {
            namespace { struct Own { double a; }; }
            inline int overloaded(double x) { return 0; }
            template <> struct Traits<double> {};
            struct Other { Twice* twice; void f() { struct Kind {}; } };
            struct Twice { ~Twice(); };
            enum class Kind : int { b };
            constexpr int overloaded(int other) { return -1; }
            static inline int helper() { return 1; }
            int strong() { return 2; }
            struct Declared;
            }
            }
        """,
        "shell/c.h": "namespace lockstep::shell { struct Declared {}; }\n",
        "tests/one/CMakeLists.txt": "add_executable(one a.cpp)\n",
        "tests/one/a.cpp": "struct Fixture {};\nTEST(One, Thing) { struct Twice {}; }\n",
        "tests/one/script.cpp": "struct Fixture {};\n",
        "tests/two/CMakeLists.txt": "add_executable(two\n  b.cpp)\n",
        "tests/two/b.cpp": "struct Fixture {};\nnamespace lockstep::shell { struct Declared {}; }\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = [line.split(" is defined in ")[0] for line in repeated(root)]
    expected = [
        "shell/b.cpp:8: class lockstep::shell::Twice",
        "shell/b.cpp:9: class lockstep::shell::Kind",
        "shell/b.cpp:10: function lockstep::shell::overloaded(int)",
        "tests/two/b.cpp:2: class lockstep::shell::Declared",
    ]
    if found != expected:
        sys.exit("found " + "\n".join(found) + "\nnot " + "\n".join(expected))


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    lines = list(repeated(Path(sys.argv[1]).resolve()))
    print("\n".join(lines) or "Each class and each inline function has one definition")
    sys.exit(1 if lines else 0)
