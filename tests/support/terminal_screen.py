"""A program on a pseudo-terminal, and the screen that a person would see: enough of a VT100 for what the line editor and the renderer draw."""
import codecs
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
import unicodedata

LIMIT_S = 300  # ends what hangs; judges nothing


class Screen:
    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.lines = [[" "] * columns for _ in range(rows)]
        self.scrolled = []
        self.row = self.column = 0
        self.rest = ""
        self.insert_mode = False

    def text(self):
        """All that was on the screen, with what has scrolled away above; blank lines at the end are left out."""
        lines = self.scrolled + ["".join(line).replace("\0", "").rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return "\n".join(lines)

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            c = text[at]
            if c == "\033":
                match = re.match(r"\033\[([?>=]?)([0-9;]*)([@-~])|\033\][^\a\033]*(?:\a|\033\\)|\033[^\[\]]", text[at:])
                if not match:
                    self.rest = text[at:]
                    return
                if match.group(3):
                    self.control(match.group(1), match.group(2), match.group(3))
                at += match.end()
                continue
            self.put(c)
            at += 1

    def put(self, c):
        if c == "\r":
            self.column = 0
        elif c == "\n":
            self.down()
        elif c == "\b":
            self.column = max(0, min(self.column, self.columns - 1) - 1)
        elif c == "\t":
            self.column = min(self.columns - 1, self.column // 8 * 8 + 8)
        elif ord(c) >= 32:
            width = 2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1
            if self.column + width > self.columns:
                self.column = 0
                self.down()
            line = self.lines[self.row]
            if self.insert_mode:
                line[self.column:self.column] = [" "] * width
                del line[self.columns:]
            if width:
                line[self.column] = c
                if width == 2:
                    line[self.column + 1] = "\0"
                self.column += width

    def down(self):
        if self.row + 1 < self.rows:
            self.row += 1
            return
        self.scrolled.append("".join(self.lines.pop(0)).replace("\0", "").rstrip())
        self.lines.append([" "] * self.columns)

    def control(self, private, arguments, final):
        numbers = [int(n) if n else 0 for n in arguments.split(";")]
        n = max(1, numbers[0])
        self.column = min(self.column, self.columns - 1) if final in "ABCDGKJPX@" else self.column
        line = self.lines[self.row]
        if private:
            return
        if final == "A":
            self.row = max(0, self.row - n)
        elif final == "B":
            self.row = min(self.rows - 1, self.row + n)
        elif final == "C":
            self.column = min(self.columns - 1, self.column + n)
        elif final == "D":
            self.column = max(0, self.column - n)
        elif final == "G":
            self.column = n - 1
        elif final == "H":
            self.row = min(self.rows, n) - 1
            self.column = min(self.columns, max(1, numbers[1] if len(numbers) > 1 else 1)) - 1
        elif final == "K":
            begin, end = {0: (self.column, self.columns), 1: (0, self.column + 1), 2: (0, self.columns)}[numbers[0]]
            line[begin:end] = [" "] * (end - begin)
        elif final == "J":
            if numbers[0] == 0:
                line[self.column:] = [" "] * (self.columns - self.column)
                for row in range(self.row + 1, self.rows):
                    self.lines[row] = [" "] * self.columns
            else:
                self.lines = [[" "] * self.columns for _ in range(self.rows)]
        elif final == "P":
            del line[self.column:self.column + n]
            line.extend([" "] * (self.columns - len(line)))
        elif final == "@":
            line[self.column:self.column] = [" "] * n
            del line[self.columns:]
        elif final == "h" and numbers[0] == 4:
            self.insert_mode = True
        elif final == "l" and numbers[0] == 4:
            self.insert_mode = False


class Program:
    """`command` on a terminal of its own. `extra`: the program's descriptor 3 is the reading end of a pipe to which say() writes."""

    def __init__(self, command, columns=80, rows=24, environment=None, extra=False):
        self.screen = Screen(columns, rows)
        self.raw = b""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.exit_code = None
        read_end, self.extra = os.pipe() if extra else (None, None)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            if extra:
                os.dup2(read_end, 3)
                os.set_inheritable(3, True)
            env = dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8")
            for name in ("NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"):
                env.pop(name, None)
            env.update(environment or {})
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            try:
                os.execvpe(command[0], command, env)
            except OSError as error:
                os.write(2, str(error).encode())
            os._exit(127)
        if extra:
            os.close(read_end)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
        if self.extra is not None:
            os.close(self.extra)

    def resize(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        os.write(self.fd, text.encode())

    def say(self, text):
        os.write(self.extra, text.encode())

    def pump(self, seconds):
        """Takes what the program writes within this time; False at its end."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        return len(self.take(65536)) > 0

    def take(self, size):
        """Waits for what the program writes, and returns up to `size` bytes of it; none at its end. The screen gets all that is
        taken: it would not understand what follows the first half of a sequence."""
        try:
            data = os.read(self.fd, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        self.raw += data
        self.screen.feed(self.decoder.decode(data))
        return data

    def wait_for(self, pattern, times=1):
        """Until the screen's text has `pattern` (a regular expression) that many times."""
        deadline = time.monotonic() + LIMIT_S
        while len(re.findall(pattern, self.screen.text(), re.MULTILINE)) < times:
            left = deadline - time.monotonic()
            alive = left > 0 and self.pump(left)
            if not alive and len(re.findall(pattern, self.screen.text(), re.MULTILINE)) < times:
                raise AssertionError(f"{pattern!r} did not come up; on the screen:\n{self.screen.text()}\nraw: {self.raw[-2000:]!r}")

    def press_until(self, key, text):
        """Sends `key` again and again until the screen has `text`."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.screen.text():
            self.send(key)
            if not self.pump(0.3) or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} did not come up; on the screen:\n{self.screen.text()}")

    def wait_end(self):
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and self.pump(deadline - time.monotonic()):
            pass
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
                return self.exit_code
            if time.monotonic() > deadline:
                raise AssertionError(f"the program did not end; on the screen:\n{self.screen.text()}")
            select.select([], [], [], 0.01)
