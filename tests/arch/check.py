"""The plan of the house, checked: each rule is a function from sources to violations. It decides nothing (`house.py` does).

By hand: `python tests/arch/check.py [path of the package]`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from arch import house
from arch.source import PACKAGE, Source, read_all

_MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}
_MUTATORS = {
    "append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear", "appendleft",
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    path: str
    line: int
    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"src/{PACKAGE}/{self.path}:{self.line}: [{self.rule}] {self.sentence}"


def covers(pattern: str, name: str) -> bool:
    """`os.environ` covers os.environ.get; `*.write_text` covers that method of anything but our own modules."""
    if pattern.startswith("*."):
        return name.rpartition(".")[2] == pattern[2:] and "." in name and not name.startswith(f"{PACKAGE}.")
    return name == pattern or name.startswith(f"{pattern}.")


def owned(path: str, places: Iterator[str] | tuple[str, ...] | list[str]) -> bool:
    return any(path == place or (place.endswith("/") and path.startswith(place)) for place in places)


def room_of(module: str) -> str | None:
    """`paceline.worker.world.env` -> worker.world; None for the package itself and its public names."""
    words = module.split(".")[1:]
    wing = ".".join(words[:2])
    if wing in house.ROOMS:
        return wing
    return words[0] if words and words[0] in house.ROOMS else None


def _room_of_file(source: Source) -> str | None:
    return "__init__" if source.path == "__init__.py" else room_of(source.module)


def imports(source: Source) -> Iterator[Violation]:
    room = _room_of_file(source)
    if room is None:
        yield Violation(
            source.path, 1, "plan", "no room of this name is in the plan of the house (tests/arch/house.py)"
        )
        return
    allowed = house.ROOMS[room]
    for item in source.imports:
        if item.name.split(".")[0] != PACKAGE:
            continue
        target = room_of(item.name)
        if target is None:
            yield Violation(
                source.path, item.line, "rooms", f"{item.name}: the public names are for users, not for the inside"
            )
        elif target != room and target not in allowed:
            wall = (
                "the parent never imports the worker"
                if target.startswith("worker") and not room.startswith("worker")
                else ""
            )
            may = wall or (f"{room} may import {', '.join(allowed)}" if allowed else f"{room} stands on nothing")
            yield Violation(source.path, item.line, "rooms", f"{room} imports {target} ({item.name}); {may}")
        elif source.path in house.TYPES_ONLY and not item.types_only:
            yield Violation(
                source.path, item.line, "rooms", f"{item.name} at run time: {house.TYPES_ONLY[source.path]}"
            )


def libraries(source: Source) -> Iterator[Violation]:
    for item in source.imports:
        for library in house.LIBRARIES:
            if not any(covers(package, item.name) for package in library.packages):
                continue
            if library.only_in and owned(source.path, library.only_in):
                continue
            if library.never_in and not owned(source.path, library.never_in):
                continue
            if library.at_import and (item.in_function or item.types_only):
                continue
            yield Violation(source.path, item.line, library.rule, f"{item.name}: {library.why}")


def doors(source: Source) -> Iterator[Violation]:
    for door in house.DOORS:
        if not source.path.startswith(door.within) or owned(source.path, list(door.owners)):
            continue
        lines: set[int] = set()  # one sentence a line is enough
        for use in source.uses:
            if use.line not in lines and any(covers(pattern, use.name) for pattern in door.names):
                lines.add(use.line)
                yield Violation(source.path, use.line, door.effect, f"{use.name.lstrip('?.')}: {door.instead}")


def shape(source: Source) -> Iterator[Violation]:
    """Sizes, names, docstrings: what a reader sees before reading."""
    limit = house.LONG_FILES.get(source.path, (house.MAX_LINES, ""))[0]
    if source.num_lines > limit:
        yield Violation(
            source.path,
            source.num_lines,
            "size",
            f"{source.num_lines} lines, more than {limit}: two concepts in a file",
        )
    for word in source.path.removesuffix(".py").split("/"):
        if word in house.EMPTY_WORDS:
            yield Violation(source.path, 1, "name", f"{word!r} says nothing about what is inside; name the concept")
    if not (ast.get_docstring(source.tree) or "").strip():
        yield Violation(source.path, 1, "docstring", "no module docstring: say what this is and what it must not do")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            words = {word.lower() for word in re.findall(r"[A-Z][a-z]*", node.name)}
            for word in sorted(words & house.EMPTY_WORDS):
                yield Violation(
                    source.path,
                    node.lineno,
                    "name",
                    f"class {node.name}: {word!r} is no word of ours; name the concept",
                )


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.ClassDef | _Function, bool]]:
    """Every class and function with its full name (`Class.method`), and whether it is a method that takes self or cls."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | _Function):
            name = f"{inside}.{child.name}" if inside else child.name
            static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in child.decorator_list)
            yield name, child, isinstance(node, ast.ClassDef) and not static
            yield from _definitions(child, name)
        else:
            yield from _definitions(child, inside)


def _num_arguments(function: _Function, *, bound: bool) -> int:
    taken = function.args
    return len([*taken.posonlyargs, *taken.args, *taken.kwonlyargs]) - bound


def large(source: Source, exceptions: Mapping[str, tuple[int, str, str]]) -> Iterator[Violation]:
    """Classes, functions and lists of arguments too long to be held in mind."""
    for name, node, bound in _definitions(source.tree):
        granted = exceptions.get(f"{source.path} {name}", (0, "", ""))[0]
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if isinstance(node, ast.ClassDef):
            if lines > max(house.MAX_CLASS_LINES, granted):
                sentence = f"class {name} has {lines} lines, more than {house.MAX_CLASS_LINES}: two concepts in a class"
                yield Violation(source.path, node.lineno, "class", sentence)
            continue
        if lines > max(house.MAX_FUNCTION_LINES, granted):
            sentence = f"{name}() has {lines} lines, more than {house.MAX_FUNCTION_LINES}: name its parts"
            yield Violation(source.path, node.lineno, "function", sentence)
        arguments = _num_arguments(node, bound=bound)
        command = owned(source.path, list(house.COMMANDS)) and not node.name.startswith("_")
        if arguments > max(house.MAX_ARGUMENTS, granted) and not command:
            sentence = (
                f"{name}() takes {arguments} arguments, more than {house.MAX_ARGUMENTS}: some of them are one thing"
            )
            yield Violation(source.path, node.lineno, "arguments", sentence)


def cpp(package: Path) -> Iterator[Violation]:
    for file in sorted(file for kind in ("*.cpp", "*.h") for file in package.rglob(kind)):
        lines = len(file.read_text().splitlines())
        if lines > house.MAX_CPP_LINES:
            sentence = f"{lines} lines, more than {house.MAX_CPP_LINES}: put a part of it into a header"
            yield Violation(file.relative_to(package).as_posix(), lines, "c++", sentence)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.id if isinstance(value.func, ast.Name) else getattr(value.func, "attr", "")
        return name in _MUTABLE_CALLS
    return isinstance(value, _MUTABLE)


def state(source: Source) -> Iterator[Violation]:
    """No module-level state that changes: a table in capitals is a constant, and nobody writes to it."""
    tables: set[str] = set()
    for node in source.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _mutable(node.value):
            for name in (target.id for target in _targets(node) if isinstance(target, ast.Name)):
                tables.add(name)
                if name.upper() != name and name != "__all__":
                    yield Violation(
                        source.path,
                        node.lineno,
                        "state",
                        f"{name}: module-level state that can change; pass it instead",
                    )
    own = {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield Violation(source.path, node.lineno, "state", f"global {', '.join(node.names)}: pass it instead")
            changed = [target.value for target in _targets(node) if isinstance(target, ast.Subscript)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
                changed.append(node.func.value)
            for target in changed:
                if isinstance(target, ast.Name) and target.id in tables - own:
                    yield Violation(
                        source.path, _line(node), "state", f"{target.id} is a table of this module and is changed here"
                    )


def patches(source: Source) -> Iterator[Violation]:
    """Nothing of another library is replaced: what the user measures must be what the user has."""
    for node in ast.walk(source.tree):
        places = [target for target in _targets(node) if isinstance(target, ast.Attribute)]
        names = [name for place in places if (name := source.dotted(place))]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
            names += [f"{name}.?" for name in [source.dotted(node.args[0])] if name]
        for name in names:
            if not name.startswith("?") and not any(covers(flag, name) for flag in house.FLAGS):
                yield Violation(source.path, _line(node), "patch", f"{name} is assigned to: no monkeypatching")


def work(source: Source) -> Iterator[Violation]:
    if source.path in house.ENTRY_POINTS:
        return
    for node in source.tree.body:
        if isinstance(node, ast.For | ast.While | ast.With) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield Violation(source.path, node.lineno, "work", "work at import: put it into a function")


def cycles(sources: list[Source]) -> Iterator[Violation]:
    """Files that import each other in a ring, however deep inside functions the imports stand."""
    known = {source.module: source for source in sources}
    graph: dict[str, dict[str, int]] = {}
    for source in sources:
        edges = graph.setdefault(source.module, {})
        for item in source.imports:
            target = item.name if item.name in known else item.name.rpartition(".")[0]
            if target in known and target != source.module:
                edges.setdefault(target, item.line)
    done: set[str] = set()

    def walk(module: str, trail: list[str]) -> Iterator[Violation]:
        for target, line in graph[module].items():
            if target in trail:
                ring = " -> ".join([*trail[trail.index(target) :], target])
                yield Violation(known[module].path, line, "cycle", ring)
            elif target not in done:
                yield from walk(target, [*trail, target])
        done.add(module)

    for module in graph:
        if module not in done:
            yield from walk(module, [module])


def check(package: Path, exceptions: Mapping[str, tuple[int, str, str]] = house.LARGE) -> list[Violation]:
    """Everything that is wrong with the tree below `package` (the folder that holds `__init__.py`)."""
    sources = read_all(package)
    violations = {*cycles(sources), *cpp(package)}
    for source in sources:
        for rule in (imports, libraries, doors, shape, state, patches, work):
            violations.update(rule(source))
        violations.update(large(source, exceptions))
    return sorted(violations)


if __name__ == "__main__":
    default = Path(__file__).resolve().parents[2] / "src" / PACKAGE
    violations = check(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    print("\n".join(map(str, violations)) or "clean")
    sys.exit(bool(violations))
