"""`python -m support.moto_alone PORT`: moto's S3 server, one request at a time.

moto 5.2.5 looks at `If-Match` and writes later, without a lock between: two of sixteen racing puts may both succeed.
S3 is not like that, so requests take turns here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


def main(port: int) -> None:
    app: Any = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with turn:
            return [b"".join(app(environ, start_response))]

    run_simple("127.0.0.1", port, one_at_a_time, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
