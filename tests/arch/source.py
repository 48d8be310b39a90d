"""One source file, read once: what it imports, which names it uses and where. It knows Python, and no rule of the house."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "paceline"
_MODE = re.compile(r"[rwaxbtU+]{1,4}")


@dataclass(frozen=True, slots=True)
class Import:
    name: str  # full: `from os import environ` is os.environ
    line: int
    in_function: bool
    types_only: bool


@dataclass(frozen=True, slots=True)
class Use:
    name: str  # resolved through the imports; `?.write_text` where the receiver is anybody's guess
    line: int


@dataclass(slots=True)
class Source:
    path: str  # posix, relative to the package
    tree: ast.Module
    num_lines: int
    imports: list[Import] = field(default_factory=list[Import])
    uses: list[Use] = field(default_factory=list[Use])
    aliases: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def module(self) -> str:
        words = [PACKAGE, *self.path.removesuffix(".py").split("/")]
        return ".".join(words[:-1] if words[-1] == "__init__" else words)

    def dotted(self, node: ast.expr) -> str | None:
        """`np.random.seed` -> numpy.random.seed; None where the expression is no chain of names."""
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self.aliases.get(node.id, f"?{node.id}")
        return ".".join([root, *reversed(words)])


def _bound(tree: ast.Module) -> set[str]:
    """Names the file gives a meaning of its own: these are no builtins in it."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return names | {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _types_only(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


class _Imports(ast.NodeVisitor):
    """First walk: imports at any depth, because that is where cycles hide, and the names they bind."""

    def __init__(self, source: Source) -> None:
        self.source, self.depth, self.types = source, 0, 0

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        types = _types_only(node.test)
        self.types += types
        for child in node.body:
            self.visit(child)
        self.types -= types
        for child in node.orelse:
            self.visit(child)

    def _add(self, name: str, line: int) -> None:
        self.source.imports.append(Import(name, line, self.depth > 0, self.types > 0))
        if not self.types:
            self.source.uses.append(Use(name, line))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)
            bound = alias.asname or alias.name.split(".")[0]
            self.source.aliases[bound] = alias.name if alias.asname else bound

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        origin = node.module or ""
        if node.level:
            words = self.source.module.split(".")
            here = words if self.source.path.endswith("__init__.py") else words[:-1]
            origin = ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])
        for alias in node.names:
            name = f"{origin}.{alias.name}"
            self._add(name, node.lineno)
            self.source.aliases[alias.asname or alias.name] = name

    def visit_Call(self, node: ast.Call) -> None:
        # import_module("literal") is an import; the names it binds nobody can know.
        if self.source.dotted(node.func) == "importlib.import_module" and node.args:
            what = node.args[0]
            if isinstance(what, ast.Constant) and isinstance(what.value, str):
                self._add(what.value, node.lineno)
        self.generic_visit(node)


class _Uses(ast.NodeVisitor):
    """Second walk: every name that is read, and the forms of a call that matter by their arguments."""

    def __init__(self, source: Source, bound: set[str]) -> None:
        self.source, self.bound = source, bound

    def _use(self, name: str, line: int) -> None:
        self.source.uses.append(Use(name, line))

    def visit_If(self, node: ast.If) -> None:
        for child in node.orelse if _types_only(node.test) else [node.test, *node.body, *node.orelse]:
            self.visit(child)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self.source.dotted(node)
        self._use(name or f"?.{node.attr}", node.lineno)
        if name is None:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.source.aliases:
            self._use(self.source.aliases[node.id], node.lineno)
        elif hasattr(builtins, node.id) and node.id not in self.bound:
            self._use(f"builtins.{node.id}", node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        keywords = {word.arg: word.value for word in node.keywords}
        self._use(f"{self.source.dotted(node.func)}()", node.lineno)  # to be handed a thing is not to make one
        for name in ("shell", "allow_pickle"):
            value = keywords.get(name)
            if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
                self._use(f"{name}=True", node.lineno)
        kind = keywords.get("typ")
        if isinstance(kind, ast.Constant) and kind.value == "unsafe":
            self._use("typ='unsafe'", node.lineno)
        if _opens_to_write(node, keywords):
            self._use("open to write", node.lineno)
        if isinstance(node.func, ast.Name) and node.func.id == "print" and "file" in keywords:
            # print(file=sys.stderr) is no stdout; print(file=sys.stdout) is found by the name of the stream.
            for child in [*node.args, *keywords.values()]:
                self.visit(child)
            return
        self.generic_visit(node)


def _opens_to_write(node: ast.Call, keywords: dict[str | None, ast.expr]) -> bool:
    function = node.func
    if isinstance(function, ast.Name) and function.id == "open":
        modes = node.args[1:2]
        unclear = True  # a mode that is no literal can be anything
    elif isinstance(function, ast.Attribute) and function.attr == "open":
        modes = node.args[:2]  # Path.open(mode) and gzip.open(path, mode)
        unclear = False
    else:
        return False
    if "mode" in keywords:
        modes = [keywords["mode"]]
    for mode in modes:
        if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
            if _MODE.fullmatch(mode.value) and set(mode.value) & set("wax+"):
                return True
        elif unclear:
            return True
    return False


def read(file: Path, package: Path) -> Source:
    text = file.read_text()
    tree = ast.parse(text, filename=str(file))
    source = Source(file.relative_to(package).as_posix(), tree, len(text.splitlines()))
    _Imports(source).visit(tree)
    _Uses(source, _bound(tree)).visit(tree)
    return source


def read_all(package: Path) -> list[Source]:
    return [read(file, package) for file in sorted(package.rglob("*.py"))]
