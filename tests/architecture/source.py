"""The package's own source as syntax trees, for the tests of the house."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "attnprobe"

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def trees() -> dict[str, ast.Module]:
    """Every Python file of the package, by its path from the root of the project."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): ast.parse(file.read_text("utf-8")) for file in files}


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Every node of the kinds, with the file that it stands in."""
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield file, node


def public_methods(node: ast.ClassDef) -> list[str]:
    """The names without an underscore that a class defines itself, properties included."""
    return [item.name for item in node.body if isinstance(item, FUNCTIONS) and not item.name.startswith("_")]


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def depth_of_classes() -> dict[str, int]:
    """How many classes of our own stand above one another, the class itself counted."""
    bases = {
        node.name: [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases]
        for _, node in nodes(ast.ClassDef)
    }

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in bases[name] if base in bases and base != name), default=0)

    return {name: depth(name) for name in bases}
