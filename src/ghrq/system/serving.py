"""One page on localhost, until the user stops it."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ghrq.system.errors import UserError

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_server(html: str, port: int = 0) -> ThreadingHTTPServer:
    """A server of ``html`` at ``/``, for this machine only; with ``port`` 0 on any free port.

    It answers only requests that name this machine, so that no page elsewhere can read it through a name of its own
    that leads here.
    """
    content = html.encode()

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "ghrq", ""

        def do_GET(self) -> None:
            name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if name not in ("127.0.0.1", "localhost"):
                self.send_error(403, "only for this machine")
            elif self.path.partition("?")[0] != "/":
                self.send_error(404, "there is only /")
            else:
                self.send_response(200)
                for header, value in {**_HEADERS, "Content-Length": str(len(content))}.items():
                    self.send_header(header, value)
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Requests are not worth a line."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot serve on port {port} ({reason}): choose another with --port, or none") from error
