"""The code blocks in docstrings that users read: of the generated reference, and of the example DAGs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

__all__ = ["docstring_blocks"]

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = _ROOT / "docs" / "reference" / "python"
_DIRECTIVE = re.compile(r"^\.\. auto(?:module|class):: ([\w.]+)$", re.M)


def docstring_blocks() -> dict[str, list[str]]:
    """The blocks by the name of the module, class or function, such as ``airflow_delta.assets``."""
    found = {}
    for file, has_own in sorted(_files().items()):
        module = ".".join(file.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name, text in _docstrings(ast.parse(file.read_text("utf-8"))):
            if (name or has_own) and (blocks := [*_blocks(text)]):
                found[f"{module}.{name}".rstrip(".")] = blocks
    return found


def _files() -> dict[Path, bool]:
    """The modules that the reference documents, and whether it has the docstring of the module itself."""
    found = dict.fromkeys((_ROOT / "airflow_delta" / "example_dags").glob("*.py"), True)
    names = [
        name
        for page in _PAGES.glob("*.rst")
        for name in _DIRECTIVE.findall(page.read_text("utf-8"))
    ]
    for name in names:
        path = _ROOT / name.replace(".", "/")
        if path.with_suffix(".py").exists():
            found[path.with_suffix(".py")] = True
            continue
        # A package, which imports what it has, or a class in a module or package.
        package = path if path.is_dir() else path.parent
        modules = package.rglob("*.py") if package.is_dir() else [package.with_suffix(".py")]
        for module in modules:
            found.setdefault(module, module == path / "__init__.py")
    return found


def _docstrings(node: ast.AST, name: str = "") -> Iterator[tuple[str, str]]:
    """The docstrings of a module, its classes and functions, and the names of these in the module."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        if text := ast.get_docstring(node):
            yield name, text
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                yield from _docstrings(child, f"{name}.{child.name}".lstrip("."))


def _blocks(text: str) -> Iterator[str]:
    """What is indented below a line that ends with ``::``."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.endswith("::"):
            indent = len(line) - len(line.lstrip())
            block = []
            for following in lines[number + 1 :]:
                if following.strip() and not following.startswith(" " * (indent + 1)):
                    break
                block.append(following)
            yield dedent("\n".join(block)).strip("\n")
