"""A program in a terminal of tmux: keys go in as a person types them, and the screen comes back as it is shown."""
import os
import re
import shutil
import subprocess
import tempfile

from waiting import wait_until

PROMPT = r"^In \[{}\] (ranks? [0-9,-]+ |no rank )?▸ *\n?\Z"  # the last one, of that number


class Terminal:
    def __init__(self, command, columns=80, rows=24, environment=None):
        self.folder = tempfile.mkdtemp(prefix="ls-")
        self.socket = os.path.join(self.folder, "tmux")
        env = {name: value for name, value in os.environ.items()
               if name not in ("NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TMUX", "EDITOR", "VISUAL")}
        env.update(LC_ALL="C.UTF-8")
        settings = dict(environment or {})
        # TERM is tmux's to set, unless a test asks for another one.
        words = ["env"] + [f"{name}={value}" for name, value in settings.items()] + command
        subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                        "-s", "test", ";", "set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "status", "off"],
                       env=env, check=True, stdout=subprocess.DEVNULL)
        self.tmux("resize-window", "-t", "test", "-x", str(columns), "-y", str(rows))
        self.tmux("respawn-pane", "-k", "-t", "test", *words)

    def tmux(self, *words, text=None):
        return subprocess.run(["tmux", "-S", self.socket, *words], input=text, capture_output=True, text=True, check=True).stdout

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def type(self, text):
        if text.endswith(";"):  # which would end tmux's own command
            text = text[:-1] + "\\;"
        self.tmux("send-keys", "-t", "test", "-l", "--", text)

    def press(self, *keys):
        """Keys by tmux's names: Enter, Up, C-r, M-Enter, PPage."""
        self.tmux("send-keys", "-t", "test", *keys)

    def enter(self, text, number=None):
        """Types a line and Enter. Where a number is given, waits for its prompt."""
        self.type(text)
        self.press("Enter")
        if number is not None:
            self.wait_for(PROMPT.format(number))

    def paste(self, text):
        self.tmux("load-buffer", "-", text=text)
        self.tmux("paste-buffer", "-p", "-r", "-t", "test")

    def resize(self, columns, rows):
        self.tmux("resize-window", "-t", "test", "-x", str(columns), "-y", str(rows))

    def screen(self, colours=False, history=False):
        """The rows that are shown; with what has scrolled away. Blank rows at the end are left out."""
        words = ["capture-pane", "-p", "-t", "test"] + (["-e"] if colours else []) + (["-S", "-"] if history else [])
        return self.tmux(*words).rstrip("\n ") + "\n"

    def cursor(self):
        """Column and row of the cursor, from 0."""
        column, row = self.tmux("display-message", "-p", "-t", "test", "#{cursor_x} #{cursor_y}").split()
        return int(column), int(row)

    def wait_for(self, pattern, history=False):
        """Until the screen has `pattern`, a regular expression; returns the screen."""
        def shown():
            screen = self.screen(history=history)
            return re.search(pattern, screen, re.MULTILINE) and screen

        return wait_until(shown, lambda: f"that the screen has {pattern!r}:\n{self.screen(history=history)}")
