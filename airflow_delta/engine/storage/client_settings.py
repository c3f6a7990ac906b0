"""The settings of obstore's HTTP client, with time limits for requests.

obstore's default limit is 30 seconds for a whole request with its body. A large object on a slow line takes
longer, in each attempt. So the defaults here limit silence instead:

* ``read_timeout``: the longest time without an answer of the store. In a download it starts again with each
  piece that arrives, so objects of any size can be read. An upload is silent until its end; large files are
  uploaded in parts that are small enough for a slow line (`upload_parts`).
* ``timeout``: the limit for a whole request. Only a store that sends bytes endlessly reaches it.

If the user gives a ``timeout``, as an option or in the environment, it is the only limit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["build_client_settings"]

_TIME_LIMITS = {"timeout": "1h", "read_timeout": "60s"}

# The settings that obstore takes from the environment, but only if it is given no client setting at all.
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
    """Return all settings of the HTTP client: the user's, those of the environment, and time limits.

    Args:
        given: the user's settings.
        variables: the prefix of the store's environment variables.
    """
    environment = {
        name: os.environ[variable]
        for name in _FROM_ENVIRONMENT
        if (variable := f"{variables}{name.upper()}") in os.environ
    }
    known = {**environment, **given}
    return known if "timeout" in known else {**_TIME_LIMITS, **known}
