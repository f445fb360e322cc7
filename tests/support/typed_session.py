"""A session on a terminal that can't move its cursor (TERM=dumb): what is typed there, and what it writes as plain lines."""
import re
import time

from terminal_screen import Program

PROMPT = re.compile(r"In \[\d+\] (?:ranks? ([\d,-]+)|all ranks dead) ▸ \Z")
REPEAT_S = 3  # a mark is typed again after that: Ctrl-C takes away what was typed behind it


class SessionEnded(Exception):
    pass


class Paper:
    """Takes what is written in place of a screen, as fast as floods of output need it."""

    def __init__(self):
        self.sheets, self.end = [], ""

    def feed(self, text):
        text = text.replace("\r", "")
        self.sheets.append(text)
        self.end = (self.end + text)[-4000:]  # more than a prompt and what stands above it

    def text(self):
        return "".join(self.sheets)

    def take(self):
        text, self.sheets = self.text(), []
        return text


def numbers_of(ranks):
    """The numbers in a set of ranks as prompts spell it: 0-2,5."""
    ends = [part.split("-") for part in ranks.split(",")] if ranks else []
    return {number for each in ends for number in range(int(each[0]), int(each[-1]) + 1)}


class TypedSession(Program):
    def __init__(self, command, environment, limit_s):
        super().__init__(command, columns=400, environment={"TERM": "dumb", **environment})
        self.screen = Paper()
        self.limit_s = limit_s
        self.marks = 0

    def pump(self, seconds):
        alive = super().pump(seconds)
        self.raw = b""
        return alive

    def type(self, line):
        self.send(line + "\n")

    def mark(self):
        """Waits until all that was typed is done. The mark is what a command prints, so it comes only if the session answers."""
        self.marks += 1
        answer = f"mark {7 * self.marks} ends\n"
        deadline = time.monotonic() + self.limit_s
        typed = float("-inf")
        while not (answer in self.screen.end and PROMPT.search(self.screen.end)):
            now = time.monotonic()
            if now > deadline:
                raise AssertionError(f"the session did not answer within {self.limit_s} s; it wrote last:\n{self.screen.end[-700:]}")
            if now - typed > REPEAT_S and answer not in self.screen.end:
                self.send(f"\n!echo mark $((7 * {self.marks})) ends\n")  # the empty line ends a cell that was begun
                typed = now
            if not self.pump(min(deadline - now, REPEAT_S)):
                raise SessionEnded(f"the session ended; it wrote last:\n{self.screen.end[-700:]}")

    def wait_for_text(self, text):
        deadline = time.monotonic() + self.limit_s
        while text not in self.screen.text():
            if time.monotonic() > deadline or not self.pump(deadline - time.monotonic()):
                raise AssertionError(f"{text!r} did not come; the session wrote last:\n{self.screen.end[-700:]}")

    def shows(self, text, limit_s):
        """Whether it writes `text` within that time, from now on."""
        deadline = time.monotonic() + limit_s
        end, seen = "", len(self.screen.sheets)
        while True:
            for sheet in self.screen.sheets[seen:]:
                end = end[-len(text):] + sheet
                if text in end:
                    return True
            seen = len(self.screen.sheets)
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not self.pump(left):
                raise SessionEnded(f"the session ended; it wrote last:\n{self.screen.end[-700:]}")

    def live_ranks(self):
        """Those that the prompt names."""
        return numbers_of(PROMPT.search(self.screen.end)[1])

    def settle(self, ranks=None):
        """Waits until all that was typed is done and, where `ranks` are given, until the prompt names these. Returns what was written
        since the last call."""
        deadline = time.monotonic() + self.limit_s
        self.mark()
        while ranks is not None and self.live_ranks() != ranks:
            if time.monotonic() > deadline:
                raise AssertionError(f"the prompt names ranks {self.live_ranks()}, not {ranks}; the session wrote:\n{self.screen.text()[:2000]}")
            self.pump(REPEAT_S)
            self.mark()
        return self.screen.take()
