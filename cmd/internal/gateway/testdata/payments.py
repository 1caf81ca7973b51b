# A service as frameworks on WSGI make them easily: it takes several spellings
# of a path for one, and a header for the method. It says where it listens.
import json
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

paid = []


def service(environ, start_response):
    path = environ["PATH_INFO"].split(";")[0].rstrip("/").lower()
    method = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE", environ["REQUEST_METHOD"]).upper()
    if (method, path) == ("POST", "/payments"):
        paid.append({name: environ.get(name) for name in ("HTTP_X_ACCOUNT", "HTTP_IDEMPOTENCY_FENCE")})
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(paid).encode()]


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


with make_server("127.0.0.1", 0, service, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
