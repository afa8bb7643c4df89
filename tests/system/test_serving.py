"""A page on localhost: for this machine, at one address."""

import http.client
import threading

import pytest

from ghrq.system.errors import UserError
from ghrq.system.serving import page_server


@pytest.fixture
def server():
    with page_server("<p>grüße</p>") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server, path="/", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    response = connection.getresponse()
    return response.status, response.read().decode(), response


def test_it_serves_the_page_to_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"
    status, text, response = get(server)
    assert (status, text) == (200, "<p>grüße</p>")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert get(server, "/?x")[0] == get(server, host="localhost:80")[0] == 200
    assert get(server, "/etc/passwd")[0] == 404
    assert get(server, host="evil.example")[0] == get(server, host="localhost.evil.example:80")[0] == 403


def test_a_port_that_is_taken_is_an_error(server):
    port = server.server_address[1]
    with pytest.raises(UserError, match=f"cannot serve on port {port} .*--port"):
        page_server("", port)
