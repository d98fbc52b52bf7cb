"""A headless Chromium, told what to do over its debugging pipe: no driver, no port, Python's standard library alone."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program():
    """The browser's path, or None where none is installed."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """One process with one page. Use as a context manager."""

    def __init__(self, deadline_s=900):
        self.deadline = time.monotonic() + deadline_s
        self.profile = tempfile.mkdtemp(prefix="mfu-browser-")
        ours_out, theirs_in = os.pipe()
        theirs_out, ours_in = os.pipe()
        # The protocol's pipe is descriptors 3 and 4 of the browser: it reads from 3 and writes to 4.
        self.child = subprocess.Popen(
            ["sh", "-c", 'exec "$0" "$@" 3<&%d 4>&%d' % (theirs_out, theirs_in), program(), "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run", "--disable-extensions",
             "--disable-component-update", "--disable-background-networking", "--disable-sync", "--user-data-dir=" + self.profile,
             "about:blank"],
            pass_fds=(theirs_out, theirs_in), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.profile, "XDG_CONFIG_HOME": self.profile, "XDG_CACHE_HOME": self.profile},
            start_new_session=True)
        os.close(theirs_out)
        os.close(theirs_in)
        self.read_from, self.write_to = ours_out, ours_in
        self.buffer = b""
        self.number = 0
        self.events = []
        try:
            target = self.call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
            self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(domain + ".enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
        os.close(self.read_from)
        os.close(self.write_to)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self):
        """The next message, waiting for it."""
        while b"\0" not in self.buffer:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_from], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.read_from, 1 << 16)
            if not data:
                raise RuntimeError(f"the browser ended, exit code {self.child.wait()}")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, parameters=None, session=""):
        self.number += 1
        number = self.number
        request = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.write_to, data):]
        while True:
            answer = self.message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, path, width=1280, height=900, dark=False):
        """Loads a file and waits until its body says data-ready. Forgets what happened before."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.call(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
        )
        self.call("Page.navigate", {"url": path.resolve().as_uri()})
        while not self.evaluate("document.readyState === 'complete'"):
            time.sleep(0.02)
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {json.dumps(result['exceptionDetails'])}")
        return result["result"].get("value")

    def complaints(self):
        """What the console and the log of the page hold as errors or warnings, and uncaught exceptions."""
        out = []
        for event in self.events:
            p = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                out.append(p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                out.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
            elif event["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                out.append(p["entry"]["text"])
        return out

    def requests(self):
        """Every address that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path):
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip})["data"]
        path.write_bytes(base64.b64decode(data))
