"""What torch's compiler failed of, as one line of text. It imports no torch; the whole error, with its commands and generated code,
stays in the rank's log."""

from __future__ import annotations

import re

_NO_CXX = ("No working C++ compiler", "InvalidCxxCompiler")
# x.cpp:3:1: error: ... of g++, clang++, nvcc and ptxas; the linker has lines of its own, and g++ only sums them up
_OF_COMPILER = re.compile(r"^.*\b(?:fatal )?error: .*$", re.MULTILINE)
_OF_LINKER = re.compile(r"^\S*ld(?:\.\w+)?: .*$", re.MULTILINE)
_NAMED = re.compile(r"^\s*([\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)
_BOILERPLATE = re.compile(r"^backend='\w+' raised:\s*")
_TRACEBACK = "Traceback (most recent call last)"
_SUMMARY = "collect2: error:"
_LONGEST = 300


def of_compiler(error: BaseException) -> bool:
    """By name, because whoever asks need not have imported the compiler."""
    return any(kind.__name__ in ("BackendCompilerFailed", "CppCompileError") for kind in type(error).__mro__)


def no_cxx_compiler(error: BaseException) -> bool:
    return any(words in str(error) for words in _NO_CXX)


def cause(error: BaseException) -> str:
    """The first line that says what is wrong: of the C++ compiler, of the traceback that a compiling process sent (its
    last line), or of the innermost exception."""
    text = _BOILERPLATE.sub("", str(error).strip())
    if _TRACEBACK in text and (named := _NAMED.findall(text)):
        return _short(named[-1])
    if lines := [line for line in _OF_COMPILER.findall(text) if _SUMMARY not in line]:
        return _short(re.sub(r"^/\S*/", "", lines[0].strip()))
    if lines := _OF_LINKER.findall(text):
        return _short(re.sub(r"^/\S*/", "", lines[0]))
    inner = error
    while isinstance(below := getattr(inner, "inner_exception", None), BaseException):
        inner = below
    said = next((line.strip() for line in str(inner).splitlines() if line.strip()), "no message")
    # what torch wraps has its kind in front of it already: LoweringException: AssertionError: ...
    return _short(said if _NAMED.match(said) else f"{type(inner).__name__}: {said}")


def _short(line: str) -> str:
    """Any file and terminal can take it."""
    return " ".join(line.split())[:_LONGEST].encode(errors="backslashreplace").decode()
