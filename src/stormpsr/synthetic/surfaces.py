"""Two things VTK does well with surfaces: finding one in a field of distances, and making one simpler.

Shape legend: V vertices, T triangles, X Y Z grid points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stormpsr.errors import MissingExtraError

__all__ = ["contour", "require_vtk", "simplified"]

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


def simplified(vertices_V3: NDArray[np.float64], triangles_T3: NDArray[np.int64], max_triangles: int) -> Surface:
    """About `max_triangles` triangles of nearly the same shape."""
    vtk = require_vtk("simplifying a mesh")
    from vtk.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray

    data = vtk.vtkPolyData()
    points = vtk.vtkPoints()
    points.SetData(numpy_to_vtk(vertices_V3, deep=True))
    data.SetPoints(points)
    cells = vtk.vtkCellArray()
    offsets = np.arange(0, 3 * len(triangles_T3) + 1, 3, dtype=np.int64)
    cells.SetData(
        numpy_to_vtkIdTypeArray(offsets, deep=True),
        numpy_to_vtkIdTypeArray(np.ascontiguousarray(triangles_T3, dtype=np.int64).ravel(), deep=True),
    )
    data.SetPolys(cells)
    return _decimated(vtk, data, max_triangles)


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
