"""Connect the lineage of Spark jobs with that of the tasks that submit them.

The Spark listener of OpenLineage reports the datasets of a job itself, if the user has installed it. This
module hands it the task as parent job, and the address of the events, as Airflow's own operators for Spark
do. The settings are those of Airflow's provider: ``[openlineage] spark_inject_parent_job_info`` and
``spark_inject_transport_info``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_delta.version_compat import properties_of_parent_job

__all__ = ["with_parent_job"]

_TRANSPORT = "spark.openlineage.transport."
_SECRETS = ("auth.", "headers.")
"""Parts of the names of properties with credentials, such as ``….transport.auth.apiKey``."""

_log = logging.getLogger(__name__)


def with_parent_job(properties: Mapping[str, str]) -> dict[str, str]:
    """Add the parent job and the transport to the Spark properties of a job, if the settings say so.

    Credentials of the transport aren't added, because properties are arguments of ``spark-submit``, which
    every user of the machine can see. An error is only logged.

    :param properties: the properties that the user has given, which stay.
    """
    try:
        found = properties_of_parent_job(properties)
    except Exception:  # noqa: BLE001  (whatever it is, the job can do its work)
        _log.warning("the Spark job isn't connected with the lineage of its task", exc_info=True)
        return dict(properties)
    secrets = [name for name in found if name not in properties and _is_secret(name)]
    if secrets:
        _log.info(
            "the credentials of OpenLineage's transport aren't passed to the Spark job, because they would "
            "be visible in the arguments of spark-submit; configure them in the Spark installation: %s",
            ", ".join(secrets),
        )
    return {name: value for name, value in found.items() if name not in secrets}


def _is_secret(name: str) -> bool:
    return name.startswith(_TRANSPORT) and any(f".{part}" in name for part in _SECRETS)
