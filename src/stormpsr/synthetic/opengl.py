"""Is there an OpenGL that draws off screen? Asked before VTK is, because VTK ends the process where there is none."""

from __future__ import annotations

import ctypes
import os
import sys

from stormpsr.errors import InputError

__all__ = ["require_opengl"]

_PACKAGES = "install Mesa's software renderer, on Debian and Ubuntu: apt install libegl1 libgl1 libgl1-mesa-dri"
_EGL_PLATFORM_DEVICE = 0x313F
_OSMESA_NAMES = ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")


def require_opengl() -> None:
    """Raise an error that names the packages to install if nothing can be drawn here."""
    if not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or _has_osmesa():
        return
    problem = _egl_problem()
    if problem:
        raise InputError(f"no OpenGL for drawing off screen ({problem})", cure=_PACKAGES)


def _has_osmesa() -> bool:
    for name in _OSMESA_NAMES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def _egl_problem() -> str | None:
    """What is missing for EGL, the way without a screen: the library, a device, or a driver for it."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return "libEGL.so.1 is missing"
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    egl.eglInitialize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    addresses = [egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT")]
    if not all(addresses):
        return "EGL has no drawing devices"
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(addresses[0])
    display_of = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(addresses[1])
    devices, count = (ctypes.c_void_p * 16)(), ctypes.c_int(0)
    if not query(16, devices, ctypes.byref(count)) or count.value == 0:
        return "EGL finds no drawing device"
    for device in devices[: count.value]:
        display = display_of(_EGL_PLATFORM_DEVICE, device, None)
        if display and egl.eglInitialize(display, None, None):
            return None
    return "EGL finds no driver"
