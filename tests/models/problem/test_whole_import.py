"""A module is imported whole, and a signal that came meanwhile is heard after it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from models.problem.whole_import import whole_import

#: A module in whose middle Ctrl-C is pressed.
CUT = """
import os, signal
FIRST = 1
os.kill(os.getpid(), signal.SIGINT)
for _ in range(1000):
    pass
LAST = 2
"""


@pytest.fixture
def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "module_cut_by_ctrl_c.py").write_text(CUT, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "module_cut_by_ctrl_c", raising=False)
    return "module_cut_by_ctrl_c"


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_ctrl_c_waits_for_the_end_of_an_import(cut: str) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        whole_import(cut)
    assert sys.modules[cut].LAST == 2
    assert signal.getsignal(signal.SIGINT) is handler
    assert whole_import(cut) is sys.modules[cut]  # nobody presses anything this time


def test_there_may_be_no_such_module() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(ImportError, match="module_that_is_not_there"):
        whole_import("module_that_is_not_there")
    assert signal.getsignal(signal.SIGINT) is handler


def test_other_threads_import_as_ever() -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(whole_import("json")))
    thread.start()
    thread.join()
    assert found == [sys.modules["json"]]
