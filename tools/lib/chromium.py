"""Headless Chromium, for the DOM of a page after its scripts and for screenshots, with a server for the pages."""

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tools.lib.common import say

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# In the browser's virtual time, which stops while it waits for a response.
VIRTUAL_TIME_MS = 20_000
TIME_OUT = 120


def find(required):
    """Returns the browser's path, or None if no browser is installed. If it is required, exits instead."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        message = f"none of these browsers is installed: {', '.join(BROWSERS)}"
        if required:
            sys.exit(message)
        say(f"skipped: {message}")
    return browser


@contextmanager
def serve(pages):
    """Serves only these files, by their paths. The value is the URL of /."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = pages.get(self.path.partition("?")[0])
            content = found.read_bytes() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def run(browser, url, *options):
    """Runs the browser on a page, and returns its standard output and the console, including errors."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
            "--enable-logging=stderr", f"--user-data-dir={profile}", f"--virtual-time-budget={VIRTUAL_TIME_MS}", *options, url,
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=TIME_OUT)
    if ran.returncode != 0:
        sys.exit(f"the browser failed\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout, [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]


def visit(browser, url):
    """Returns the JSON in the page's element `read`, and its console."""
    dom, console = run(browser, url, "--dump-dom")
    found = re.search(r'<pre id="read">(.*?)</pre>', dom, re.DOTALL)
    if not found or not found[1]:
        sys.exit("\n".join(["the page did not complete", dom, *console]))
    return json.loads(html.unescape(found[1])), console
