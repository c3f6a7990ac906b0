"""The configuration of Sphinx, by which `make docs` builds the site from the pages and the docstrings.

The source directory is the root of the repository, so that links between all pages, and links from pages to
code, are checked. The pages are also read as they are, without the site.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta.engine.version import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

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
    app.connect("build-finished", write_index)


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the tables of contents to the first page; GitHub would show them as code."""
    if page == root_doc:
        source[0] += NAVIGATION


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Write the page that web servers show for a directory."""
    if error is None:
        refresh = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        Path(app.outdir, "index.html").write_text(refresh, encoding="utf-8")
