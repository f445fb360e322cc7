"""A headless Chromium, driven by its DevTools protocol over two pipes: no port is open, and no package is needed.

https://chromedevtools.github.io/devtools-protocol/ describes the methods that are called here."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from waiting import LIMIT_S, wait_until  # noqa: E402

# Keys as pages see them: name, code, Windows' number.
KEYS = {"Tab": ("Tab", "Tab", 9), "Escape": ("Escape", "Escape", 27), "Enter": ("Enter", "Enter", 13),
        "End": ("End", "End", 35)}
CONTROL, SHIFT = 2, 8


def path():
    """Of the program; None where it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class BrowserError(Exception):
    pass


class Page:
    """One page in a browser of its own. `complaints` has what its console got as errors, and exceptions nobody caught.
    """

    def __init__(self, width=1200, height=1000, scale=1):
        self.profile = tempfile.mkdtemp(prefix="ls-browser-")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        self.log = open(os.path.join(self.profile, "log"), "w+")

        def pipes():
            # The browser reads 3 and writes 4, which other files may have by now.
            read, write = (fcntl.fcntl(pipe, fcntl.F_DUPFD, 10) for pipe in (commands, answers))
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [path(), "--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "--no-first-run",
             # A user namespace for its sandbox is not to be had for root and in most containers. The page is our own.
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
             "--disable-component-update", "--disable-extensions", "--hide-scrollbars", "--lang=en-US",
             f"--window-size={width},{height}", f"--force-device-scale-factor={scale}", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=dict(os.environ, HOME=self.profile))
        os.close(commands)
        os.close(answers)
        self.received = b""
        self.count = 0
        self.complaints = []
        self.session = None
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.call("Page.enable")
            self.call("Runtime.enable")
            self.call("Log.enable")
            self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                      mobile=False)
        except BaseException:
            self.close()
            raise

    def close(self):
        for pipe in (self.commands, self.answers):  # at whose end the browser ends
            try:
                os.close(pipe)
            except OSError:
                pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    # ---- The protocol ----------------------------------------------------------------------------------------------

    def send(self, method, **parameters):
        """Returns the number of the answer to come."""
        self.count += 1
        number = self.count
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data):]
        return number

    def call(self, method, **parameters):
        number = self.send(method, **parameters)
        end = time.monotonic() + LIMIT_S
        while True:
            answer = self.receive(end, method)
            if answer.get("id") != number:
                continue
            if "error" in answer:
                raise BrowserError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def receive(self, end, what):
        while b"\0" not in self.received:
            if not select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]:
                raise BrowserError(f"{what}: no answer in {LIMIT_S} s")
            data = os.read(self.answers, 1 << 20)
            if not data:
                self.log.seek(0)
                raise BrowserError(f"{what}: the browser has ended:\n{self.log.read()[-4000:]}")
            self.received += data
        text, self.received = self.received.split(b"\0", 1)
        message = json.loads(text)
        self.take_event(message.get("method"), message.get("params", {}))
        return message

    def take_event(self, method, parameters):
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
            self.complaints.append(" ".join(str(value.get("value", value.get("description", value["type"])))
                                            for value in parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Page.javascriptDialogOpening":  # such as: leave the page without saving?
            self.send("Page.handleJavaScriptDialog", accept=True)
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}".strip())

    # ---- What people do --------------------------------------------------------------------------------------------

    def go(self, url):
        self.call("Page.navigate", url=url)

    def evaluate(self, expression):
        """The value of JavaScript; of a promise what it resolves to."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def wait_for(self, expression, what=None):
        """Until the expression, which is evaluated again and again, has a value that is true; returns that."""
        def value():
            try:
                return self.evaluate(expression)
            except BrowserError as error:
                if "navigat" not in str(error) and "context" not in str(error) and "null" not in str(error):
                    raise
                return None  # the page is being loaded

        return wait_until(value, lambda: what or expression)

    def click(self, selector, index=0):
        """In the middle of the element, which is scrolled into view."""
        found = self.wait_for(f"""(() => {{
            const element = Array.from(document.querySelectorAll({json.dumps(selector)})).at({index});
            if (!element) return null;
            element.scrollIntoView({{block: "nearest"}});
            const box = element.getBoundingClientRect();
            return box.width > 0 ? [box.x + box.width / 2, box.y + box.height / 2] : null;
        }})()""", f"an element {selector}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=found[0], y=found[1], button="left", clickCount=1)

    def press(self, key, modifiers=0):
        name, code, number = KEYS[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=code, windowsVirtualKeyCode=number,
                      modifiers=modifiers)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
