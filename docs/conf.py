"""The configuration of Sphinx, by which `make docs` builds the site from the pages and the docstrings.

The source directory is the root of the repository, so that links between all pages, and links from pages to
code, are checked. The pages are also read as they are, without the site.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.util.nodes import make_refnode

from airflow_delta.engine.version import VERSION

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

PACKAGE = Path(__file__).resolve().parents[1] / "airflow_delta"

project = "airflow-delta"
version = release = VERSION
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib.mermaid",
]

root_doc = "README"
include_patterns = ["*.md", "benchmarks/*.md", "docker/*.md", "docs/**"]
# The folders that aren't searched for pages.
exclude_patterns = [".*", "airflow_delta", "build", "dags", "dist", "scripts", "tests"]

html_theme = "furo"
html_title = f"airflow-delta {VERSION}"
html_copy_source = False

# Pages link to headings by the anchors that GitHub gives them, and draw with its fences.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

# `name` in a docstring is a link if it names something that the site documents.
default_role = "py:obj"
# A name that neither the site nor the package has is an error; see also `find_by_short_name`.
nitpicky = True
# Names of other projects, whose documentation this one doesn't need in order to be built.
nitpick_ignore_regex = [
    ("py:.*", r"(airflow|collections|datetime|logging|os|pathlib|pa|pyarrow|pyspark)\..+"),
    ("py:.*", r"Airflow\w+Exception|AirflowException|SparkSubmitHook|Logger|datetime|timedelta"),
    ("py:.*", "AnalysisException|Column|Connection|DataFrame|PySparkException|SparkSession|URL"),
    # Sphinx cuts the types of a signature at each comma if a default value of it isn't Python.
    ("py:class", r"\w+\[\w+"),
]
autodoc_default_options = {
    "members": True,
    # What operators and hooks have for this package and for Airflow, not for users.
    "exclude-members": "arguments, check_together, collects_lineage, datasets, exclusive, on_kill, "
    "spark_arguments, template_fields",
}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

NAVIGATION = """

```{toctree}
:hidden:
:caption: Begin
docs/README
docs/tutorial
docs/how-to/set-up
```

```{toctree}
:hidden:
:caption: How to
:glob:
docs/how-to/*
```

```{toctree}
:hidden:
:caption: Reference
:glob:
docs/reference/*
docs/glossary
```

```{toctree}
:hidden:
:caption: Generated from the code
:glob:
docs/reference/python/*
```

```{toctree}
:hidden:
:caption: Explanation
:glob:
docs/explanation/*
```

```{toctree}
:hidden:
:caption: Project
CHANGELOG
CONTRIBUTING
benchmarks/README
docker/README
```
"""


def setup(app: Sphinx) -> None:
    """Connect the functions below to the build."""
    app.connect("source-read", add_navigation)
    app.connect("missing-reference", find_by_short_name)
    app.connect("build-finished", write_index)


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the tables of contents to the first page; GitHub would show them as code."""
    if page == root_doc:
        source[0] += NAVIGATION


def find_by_short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: Element
) -> Element | None:
    """Link a name without its module, such as ``DeltaTable``, if the site documents just one such object.

    Sphinx itself looks only in the module of the docstring. What the site doesn't document stays text if
    the package has it; otherwise Sphinx warns.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    found = {
        (entry.docname, entry.node_id)
        for name, entry in env.domains.python_domain.objects.items()
        # A single word that is also the name of an attribute or a method is usually an argument.
        if name.endswith(f".{target}") and ("." in target or entry.objtype not in _MEMBERS)
    }
    if len(found) == 1:
        ((page, anchor),) = found
        return make_refnode(app.builder, node["refdoc"], page, anchor, text, target)
    return text if set(target.split(".")) <= names_of_package() else None


_MEMBERS = ("attribute", "method", "property")


@cache
def names_of_package() -> frozenset[str]:
    """The names of all modules, and of what they define."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        found |= {*file.relative_to(PACKAGE.parent).with_suffix("").parts}
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return frozenset(found)


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Write the page that web servers show for a directory."""
    if error is None:
        refresh = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        Path(app.outdir, "index.html").write_text(refresh, encoding="utf-8")
