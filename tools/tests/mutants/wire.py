"""A proxy before DynamoDB that records the texts in requests, or changes them by one mutant."""

import contextlib
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tools.tests.mutants import expressions, tokens
from tools.tests.mutants.expressions import changes, texts

# The variable in which the tests find the server.
VARIABLE = "DYNAMODB_ENDPOINT"


class Expressions:
    """The mutants of the texts in requests to a server."""

    def __init__(self, endpoint):
        self.server = urlsplit(endpoint)
        self.version = b"".join(Path(module.__file__).read_bytes() for module in (expressions, tokens))

    def key(self, mutant):
        return mutant

    def is_near(self, mutant, program, test):
        return True

    @contextlib.contextmanager
    def recording(self):
        """Yields the variables of a process that reaches the server through a recording proxy, and a function that returns its mutants."""
        wire = Wire(self.server, None)
        with proxy(wire) as address:
            yield {VARIABLE: address}, wire.recorded

    @contextlib.contextmanager
    def applied(self, mutant):
        """Yields the variables of a process whose requests have the mutant."""
        with proxy(Wire(self.server, mutant)) as address:
            yield {VARIABLE: address}


class Wire:
    """Records the mutants of the texts in requests, or applies one of them, by its name."""

    def __init__(self, server, mutant):
        self.server, self.mutant = server, mutant
        self.seen = set()
        self.lock = threading.Lock()

    def recorded(self):
        with self.lock:
            return sorted(self.seen)

    def rewrite(self, body):
        """Returns the request with the mutant applied."""
        try:
            request = json.loads(body)
        except ValueError:
            return body
        is_changed = False
        for holder, field, purpose in texts(request):
            names = holder.get("ExpressionAttributeNames", {})
            found = list(changes(holder[field], names, purpose))
            if self.mutant is None:
                with self.lock:
                    self.seen.update(str(change.mutant) for change in found)
                continue
            for change in sorted(found, key=lambda change: -change.start):
                if str(change.mutant) == self.mutant:
                    text = holder[field]
                    holder[field] = text[: change.start] + change.new + text[change.end :]
                    is_changed = True
        return json.dumps(request).encode() if is_changed else body


@contextlib.contextmanager
def proxy(wire):
    """Runs the proxy until the block ends, and returns its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            super().setup()
            self.server_side = http.client.HTTPConnection(wire.server.hostname, wire.server.port)

        def finish(self):
            self.server_side.close()
            super().finish()

        def do_POST(self):
            body = wire.rewrite(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("content-length", "host")}
            self.server_side.request("POST", self.path, body, {**headers, "Host": self.headers["Host"]})
            response = self.server_side.getresponse()
            content = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request, address):
            # Tests close connections.
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
