"""Whether an OpenGL is there that draws off screen, and what VTK does well with surfaces: finding and simplifying one.

OpenGL is asked for before VTK does, because VTK ends the process where there is none.

Shape legend: V vertices, T triangles, X Y Z grid points.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import InputError, MissingExtraError

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


Surface = tuple[NDArray[np.float64], NDArray[np.int64]]


def require_vtk(purpose: str) -> Any:
    """The `vtk` package, or an error that says how to get it."""
    try:
        import vtk
    except ModuleNotFoundError as error:
        raise MissingExtraError(purpose, "synth", "vtk") from error
    return vtk


def contour(distance_ZYX: NDArray[np.float32], origin: NDArray[np.float64], cell: float, max_triangles: int) -> Surface:
    """The surface at distance 0 (outside is positive), its triangles counter-clockwise seen from outside."""
    vtk = require_vtk("drawing hands")
    from vtk.util.numpy_support import numpy_to_vtk

    grid = vtk.vtkImageData()
    grid.SetDimensions(*distance_ZYX.shape[::-1])
    grid.SetSpacing(cell, cell, cell)
    grid.SetOrigin(*origin.tolist())
    grid.GetPointData().SetScalars(numpy_to_vtk(distance_ZYX.ravel(), deep=True))
    edges = vtk.vtkFlyingEdges3D()
    edges.SetInputData(grid)
    edges.SetValue(0, 0.0)
    edges.ComputeNormalsOff()
    edges.ComputeGradientsOff()
    edges.ComputeScalarsOff()
    edges.Update()
    vertices, triangles = _decimated(vtk, edges.GetOutput(), max_triangles)
    return vertices, triangles[:, ::-1]  # VTK winds them towards smaller values


def polydata(vtk: Any, vertices_V3: NDArray[Any], triangles_T3: NDArray[Any]) -> Any:
    """Triangles as VTK holds them."""
    from vtk.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray

    data, points, cells = vtk.vtkPolyData(), vtk.vtkPoints(), vtk.vtkCellArray()
    points.SetData(numpy_to_vtk(vertices_V3, deep=True))
    cells.SetData(3, numpy_to_vtkIdTypeArray(triangles_T3.ravel().astype(np.int64), deep=True))
    data.SetPoints(points)
    data.SetPolys(cells)
    return data


def simplified(vertices_V3: NDArray[np.float64], triangles_T3: NDArray[np.int64], max_triangles: int) -> Surface:
    """About `max_triangles` triangles of nearly the same shape."""
    vtk = require_vtk("simplifying a mesh")
    return _decimated(vtk, polydata(vtk, vertices_V3, triangles_T3), max_triangles)


def _decimated(vtk: Any, data: Any, max_triangles: int) -> Surface:
    """Quadric decimation, then plain arrays."""
    from vtk.util.numpy_support import vtk_to_numpy

    count = data.GetNumberOfPolys()
    if count > max_triangles:
        decimation = vtk.vtkQuadricDecimation()
        decimation.SetInputData(data)
        decimation.SetTargetReduction(1.0 - max_triangles / count)
        decimation.Update()
        data = decimation.GetOutput()
    vertices = np.array(vtk_to_numpy(data.GetPoints().GetData()), dtype=np.float64)
    triangles = np.array(vtk_to_numpy(data.GetPolys().GetConnectivityArray()), dtype=np.int64).reshape(-1, 3)
    return vertices, triangles
