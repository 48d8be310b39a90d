"""What torch's compiler fails of is one line: of g++, of another process, or of the innermost exception; never a command line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._inductor.config
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.exc import CppCompileError, InductorError

from paceline.base.compiler_error import cause
from paceline.base.errors import RunFailed
from paceline.worker.tasks.task import users_code
from paceline.worker.transform.graph import in_words

COMMAND = ["g++", "/tmp/x/do/cdo3d.main.cpp", "-D", "ERROR_HANDLING", "-march=native", "-o", "/tmp/x/do/cdo3d.main.so"]
OF_GCC = """\
/tmp/x/do/cdo3d.main.cpp: In function 'void kernel(const float*)':
/tmp/x/do/cdo3d.main.cpp:41:9: warning: unused variable 'tmp3' [-Wunused-variable]
/tmp/x/do/cdo3d.main.cpp:42:18: error: 'vec' has not been declared
   42 |             auto tmp4 = vec::loadu(in_ptr0);
/tmp/x/do/cdo3d.main.cpp:43:2: error: expected ';'
"""
OF_LINKER = "/usr/bin/ld: cannot find -lgomp: No such file or directory\ncollect2: error: ld returned 1 exit status\n"
NO_HEADER = "/tmp/x/a.h:3:10: fatal error: omp.h: No such file or directory\ncompilation terminated.\n"
OF_PROCESS = """\
An exception occurred in a subprocess:

Name=triton_poi_0
Traceback (most recent call last):
  File "/env/torch/_inductor/compile_worker.py", line 3, in main
torch._inductor.runtime.triton_heuristics.NoTritonConfigsError: No valid triton configs. OutOfMemoryError: out of resource
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CppCompileError(COMMAND, OF_GCC), "cdo3d.main.cpp:42:18: error: 'vec' has not been declared"),
        (CppCompileError(COMMAND, OF_LINKER), "ld: cannot find -lgomp: No such file or directory"),
        (CppCompileError(COMMAND, NO_HEADER), "a.h:3:10: fatal error: omp.h: No such file or directory"),
        (RuntimeError(OF_PROCESS), "torch._inductor.runtime.triton_heuristics.NoTritonConfigsError: No valid triton configs. "
                                   "OutOfMemoryError: out of resource"),
        (AssertionError("sizes differ\nsecond line"), "AssertionError: sizes differ"),
        (KeyError(), "KeyError: no message"),
    ],
)  # fmt: skip
def test_the_first_line_that_says_what_is_wrong(error: Exception, line: str) -> None:
    assert cause(InductorError(error, None)) == line
    assert cause(BackendCompilerFailed(compile, error, None)) == line, "torch's words around it are left out"


def test_a_long_line_is_cut_and_stays_text() -> None:
    assert cause(RuntimeError("\udcff" + "x" * 999)) == "RuntimeError: \\udcff" + "x" * 285


@pytest.mark.filterwarnings("ignore")
def test_what_torchs_compiler_raises_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler itself, as far as the code it would have g++ compile."""

    def fails(*_: Any) -> Any:
        raise ValueError("no such layout\nand a page of nodes")

    monkeypatch.setattr("torch._inductor.graph.GraphLowering.codegen", fails)
    torch._dynamo.reset()
    with (
        torch._inductor.config.patch(force_disable_caches=True),
        pytest.raises(RunFailed) as failed,
        in_words("graph=compile", "use graph=eager"),
    ):
        torch.compile(torch.nn.Tanh())(torch.ones(3))
    assert failed.value.kind == "mismatch"
    assert failed.value.why == (
        "graph=compile: torch's compiler fails on the graph of the model: ValueError: no such layout; use graph=eager"
    )
    assert "and a page of nodes" in str(failed.value.__cause__), "the log has it whole"


def test_a_users_own_compiler_fails_in_the_same_words() -> None:
    with pytest.raises(RunFailed) as failed, users_code("mine", None):
        raise InductorError(CppCompileError(COMMAND, OF_GCC), None)
    assert failed.value.why == "mine: cdo3d.main.cpp:42:18: error: 'vec' has not been declared"
