"""Where nothing can be drawn, the message says what to install."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASK = """
from stormpsr.errors import InputError
from stormpsr.synthetic.vtk_tools import require_opengl
try:
    require_opengl()
except InputError as error:
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems bring their own OpenGL")
def test_without_a_driver_the_message_names_the_packages() -> None:
    hidden = {"__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent", "DISPLAY": ""}
    answer = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, **hidden}, capture_output=True, text=True, check=True
    ).stdout
    if not answer:
        pytest.skip("this machine has OSMesa, which needs no driver")
    assert "apt install libegl1" in answer
