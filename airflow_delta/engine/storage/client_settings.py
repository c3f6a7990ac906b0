"""How obstore's HTTP client is set up, and how long a request may take where the user says nothing.

The client's own limit is 30 seconds for a whole request, its body included. A large object over a slow
line takes longer than that, and however often it is tried again. So what is limited here is silence:

* ``read_timeout``: how long nothing need be heard of the store. In a download the time begins anew with
  every piece that arrives, so that any object can be read. An upload is silent till its end; large
  files are uploaded in parts that a slow line, too, sends in that time (`upload_parts`).
* ``timeout``: a limit for the whole request, which only a store that trickles for ever meets.

Whoever gives a ``timeout``, as an option or in the environment, gets that one and no other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["build_client_settings"]

_TIME_LIMITS = {"timeout": "1h", "read_timeout": "60s"}

# What obstore itself takes from the environment, unless it is given any setting of the client.
_FROM_ENVIRONMENT = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "timeout",
    "user_agent",
)


def build_client_settings(given: Mapping[str, str], *, variables: str) -> dict[str, str]:
    """All settings of the HTTP client: the user's, the environment's, and else time limits.

    Args:
        given: what the user gave.
        variables: what the names of the store's environment variables begin with.
    """
    environment = {
        name: os.environ[variable]
        for name in _FROM_ENVIRONMENT
        if (variable := f"{variables}{name.upper()}") in os.environ
    }
    known = {**environment, **given}
    return known if "timeout" in known else {**_TIME_LIMITS, **known}
