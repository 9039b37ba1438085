"""Requests below ``/page/`` to replies: files and answers, and nothing that changes anything.

Behind our authentication and authorization as ``routes`` of a part's HTTPS server; on the
loopback through ``podscale.page.http.loopback``.
"""

from collections.abc import Mapping, Sequence

from podscale.page.http.answers import PageAnswers
from podscale.page.http.files import HEADERS, File
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route
from podscale.serving.http.reply import Reply

PREFIX = "/page/"
_API = "api/"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_METHODS = ("GET", "HEAD")
# What a cache on the way kept, it would show to others, and when it is old.
_FRESH = (*HEADERS, ("Cache-Control", "no-store"))


class PageRequests:
    def __init__(self, answers: PageAnswers, files: Mapping[str, File]) -> None:
        self._answers = answers
        self._files = files

    def routes(self) -> list[Route]:
        """Return the routes for a server that knows who asks."""
        return [
            Route("/page", self._routed, _METHODS),
            Route(PREFIX + "*", self._routed, _METHODS, is_listed=False),
        ]

    def reply(
        self, method: str, path: str, query: Mapping[str, Sequence[str]], seen: str = ""
    ) -> Reply:
        """Return the reply to a request; ``seen`` is its If-None-Match."""
        if method not in _METHODS:
            return Reply(405, _TEXT, b"the page can only be read\n", (*HEADERS, ("Allow", "GET")))
        if path == PREFIX[:-1]:
            return Reply(308, _TEXT, b"", (*HEADERS, ("Location", PREFIX)))
        name = path.removeprefix(PREFIX)
        if name.startswith(_API):
            answer = self._answers.answer(name.removeprefix(_API), query)
            return Reply(answer.status, _JSON, answer.body, _FRESH)
        file = self._files.get(name)
        if file is None or not path.startswith(PREFIX):
            return Reply(404, _TEXT, b"there is no such file\n", HEADERS)
        headers = (*HEADERS, ("ETag", file.etag))
        if seen == file.etag:
            return Reply(304, file.content_type, b"", headers)
        return Reply(200, file.content_type, file.body, headers)

    def _routed(self, request: ApiRequest) -> Answered:
        reply = self.reply(
            request.method, request.path, request.query, request.headers.get("if-none-match", "")
        )
        return ApiResponse(
            body=reply.body,
            status=reply.status,
            content_type=reply.content_type,
            headers=reply.headers,
        )
