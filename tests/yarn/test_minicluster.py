"""The version of the cluster of these tests."""

from __future__ import annotations

from pathlib import Path

import pyspark


def test_the_cluster_is_of_sparks_hadoop() -> None:
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    pom = Path(__file__).with_name("pom.xml").read_text()
    artifact = "<artifactId>hadoop-client-minicluster</artifactId>"
    assert f"{artifact}\n      <version>{version}</version>" in pom
