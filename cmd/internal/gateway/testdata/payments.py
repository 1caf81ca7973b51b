# A service as frameworks on WSGI make them easily: it takes several spellings
# of a path for one, and a header, a query or a form for the method. It says
# where it listens.
import json
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

paid = []


def service(environ, start_response):
    path = environ["PATH_INFO"].split(";")[0].rstrip("/").lower()
    form = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
    asked = parse_qs(environ["QUERY_STRING"]) | parse_qs(form)
    method = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE") or asked.get("_method", [environ["REQUEST_METHOD"]])[0]
    if (method.upper(), path) in (("POST", "/payments"), ("PUT", "/orders/1"), ("PUT", "/refunds")):
        paid.append({"account": environ.get("HTTP_X_ACCOUNT", ""), "fence": environ.get("HTTP_IDEMPOTENCY_FENCE", "")})
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(paid).encode()]


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


with make_server("127.0.0.1", 0, service, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
