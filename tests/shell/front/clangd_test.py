#!/usr/bin/env python3
"""`lockstep clangd` as an editor drives it, with a real clangd: a lesson has no errors, and what is asked and answered has
the positions of the script. Usage: clangd_test.py LOCKSTEP TREE."""
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time
import unittest

LOCKSTEP, TREE = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
LESSON = TREE / "scripts/lessons/01-ddp-from-scratch.cpp"


class Editor:
    def __init__(self):
        self.process = subprocess.Popen([LOCKSTEP, "clangd", "--background-index=false", "--log=error"], bufsize=0,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.bytes, self.count = b"", 0

    def send(self, method, params, **more):
        text = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)

    def receive(self, wanted):
        """The next message for which wanted(message) holds."""
        deadline = time.monotonic() + 300
        while True:
            head, found, rest = self.bytes.partition(b"\r\n\r\n")
            size = int(head.split(b":")[1]) if found else 0
            if found and len(rest) >= size:
                message, self.bytes = json.loads(rest[:size]), rest[size:]
                if wanted(message):
                    return message
                continue
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("clangd gives no answer")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise EOFError("clangd has ended")
            self.bytes += part

    def ask(self, method, params):
        self.count += 1
        self.send(method, params, id=self.count)
        return self.receive(lambda message: message.get("id") == self.count and "method" not in message)["result"]

    def errors(self):
        """Of the next diagnostics: (line from 1, message)."""
        message = self.receive(lambda message: message.get("method") == "textDocument/publishDiagnostics")
        return [(each["range"]["start"]["line"] + 1, each["message"]) for each in message["params"]["diagnostics"]
                if each.get("severity") == 1]


@unittest.skipUnless(os.environ.get("LOCKSTEP_CLANGD") or shutil.which("clangd-19") or shutil.which("clangd"),
                     "there is no clangd (apt-get install clangd-19)")
class Clangd(unittest.TestCase):
    def test_a_lesson_in_an_editor(self):
        editor = Editor()
        self.addCleanup(editor.process.stdout.close)
        self.addCleanup(editor.process.wait, 60)
        self.addCleanup(editor.process.stdin.close)
        document = {"uri": LESSON.as_uri()}
        text = LESSON.read_text()
        lines = text.split("\n")
        editor.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {
            "textDocument": {"documentSymbol": {"hierarchicalDocumentSymbolSupport": True}}}})
        editor.send("initialized", {})
        editor.send("textDocument/didOpen", {"textDocument": {**document, "languageId": "cpp", "version": 1, "text": text}})
        self.assertEqual(editor.errors(), [])

        def at(pattern, offset=0):
            (line, column), *_ = [(i, each.index(pattern)) for i, each in enumerate(lines) if pattern in each]
            return {"line": line, "character": column + offset}

        names = [each["name"] for each in editor.ask("textDocument/documentSymbol", {"textDocument": document})]
        self.assertIn("read_digits", names)
        self.assertFalse([name for name in names if name.startswith("lockstep")], names)
        use = at("const Digits digits = read_digits(", len("const Digits digits = "))
        (found,) = editor.ask("textDocument/definition", {"textDocument": document, "position": use})
        self.assertEqual((found["uri"], found["range"]["start"]), (document["uri"], at("Digits read_digits(", 7)))
        hover = editor.ask("textDocument/hover", {"textDocument": document, "position": use})
        self.assertIn("read_digits", json.dumps(hover))
        self.assertNotIn("lockstep_script", json.dumps(hover))

        wrong = lines + ["// %% more", "int more = 1;", "more.nothing();", "more + digits.imag"]
        editor.send("textDocument/didChange", {"textDocument": {**document, "version": 2},
                                               "contentChanges": [{"text": "\n".join(wrong)}]})
        self.assertEqual([line for line, _ in editor.errors()], [len(lines) + 3, len(lines) + 4])
        end = {"line": len(wrong) - 1, "character": len(wrong[-1])}
        items = editor.ask("textDocument/completion", {"textDocument": document, "position": end})["items"]
        images = [each for each in items if each.get("filterText", each["label"]) == "images"]
        self.assertTrue(images, [each["label"] for each in items][:20])
        start = images[0]["textEdit"]["range"]["start"]
        self.assertEqual(start, {"line": end["line"], "character": len("more + digits.")})

        editor.ask("shutdown", None)
        editor.send("exit", None)
        self.assertEqual(editor.process.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
