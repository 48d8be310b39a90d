"""Which names of a file the task's functions use, directly or through others: read from its text, nothing is run."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def reached(source: Path, roots: Iterable[str]) -> set[str]:
    """Names used by the functions or methods `roots`, by what these use, and so on, and by what is run when the file is
    imported."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    uses: dict[str, set[str]] = defaultdict(set)
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, _Definition):
            uses[statement.name] |= _names(statement)
            if isinstance(statement, ast.ClassDef):
                for part in statement.body:  # a method of the task's own class is a root by itself
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                        uses[f".{part.name}"] |= _names(part)
        elif not _is_main(statement):
            found |= _names(statement)
    queue = [*found, *(name for root in roots for name in (root, f".{root}"))]
    done: set[str] = set()
    while queue:
        name = queue.pop()
        if name in done:
            continue
        done.add(name)
        for used in uses[name] - found:
            found.add(used)
            queue += [used, f".{used}"]
    return found


def _names(node: ast.AST) -> set[str]:
    loaded = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    return loaded | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _is_main(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, which is not run here."""
    return isinstance(statement, ast.If) and "__name__" in _names(statement.test)
