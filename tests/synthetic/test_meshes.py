"""Primitives and mesh files."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from stormpsr.errors import InputError
from stormpsr.synthetic.meshes import PRIMITIVES, Mesh, load_mesh, merge, pose_matrix

SIZES = {
    "box": {"size": (1.0, 2.0, 3.0)},
    "cylinder": {"radius": 1.0, "height": 2.0},
    "cone": {"radius": 1.0, "height": 2.0, "top_radius": 0.4},
    "sphere": {"radius": 1.0},
    "tube": {"radius": 1.0, "inner_radius": 0.5, "height": 1.0},
    "wheel": {"radius": 1.0, "width": 0.5, "hub_radius": 0.3},
    "ring": {"radius": 1.0, "thickness": 0.2},
    "plate": {"size": (2.0, 1.0, 0.1), "holes": [[0.0, -0.2], [0.0, 0.2], [0.5, 0.0]], "hole_radius": 0.1},
    "screw": {"radius": 0.1, "length": 1.0, "head_radius": 0.2, "head_height": 0.15},
}


def make(kind: str) -> Mesh:
    return PRIMITIVES[kind](**SIZES[kind])


def volume(mesh: Mesh) -> float:
    a, b, c = mesh.vertices_V3.astype(np.float64)[mesh.triangles_T3].transpose(1, 0, 2)
    return float(np.einsum("td,td->", a, np.cross(b, c)) / 6)


def test_every_primitive_is_tried_here() -> None:
    assert set(SIZES) == set(PRIMITIVES)


@pytest.mark.parametrize("kind", sorted(SIZES))
def test_triangles_and_normals_of_a_primitive_both_point_outwards(kind: str) -> None:
    mesh = make(kind)
    corners = mesh.vertices_V3[mesh.triangles_T3]
    facing = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert np.all(np.linalg.norm(facing, axis=1) > 1e-9)
    assert np.all(np.einsum("td,td->t", facing, mesh.normals_V3[mesh.triangles_T3].mean(axis=1)) > 0)
    assert volume(mesh) > 0


@pytest.mark.parametrize("kind", sorted(SIZES))
def test_normals_have_length_one(kind: str) -> None:
    assert np.linalg.norm(make(kind).normals_V3, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_a_box_has_the_volume_of_its_sizes() -> None:
    assert volume(make("box")) == pytest.approx(6.0)


def test_holes_take_their_volume_out_of_a_plate() -> None:
    octagon = 2 * np.sqrt(2) * 0.1**2
    assert volume(make("plate")) == pytest.approx(2.0 * 1.0 * 0.1 - 3 * octagon * 0.1, rel=1e-4)


def test_a_pose_turns_about_x_then_y_then_z_and_then_moves() -> None:
    pose = pose_matrix((1.0, 2.0, 3.0), (90.0, 0.0, 90.0))
    assert pose @ np.array([0.0, 1.0, 0.0, 1.0]) == pytest.approx([1.0, 2.0, 4.0, 1.0], abs=1e-6)
    assert pose @ np.array([1.0, 0.0, 0.0, 1.0]) == pytest.approx([1.0, 3.0, 3.0, 1.0], abs=1e-6)


def test_moving_a_mesh_keeps_its_volume_and_turns_its_normals() -> None:
    box = make("box")
    moved = box.moved(pose_matrix((5.0, 0.0, 0.0), (0.0, 90.0, 0.0)))
    assert volume(moved) == pytest.approx(6.0, rel=1e-5)
    assert moved.vertices_V3.max(axis=0) == pytest.approx([6.5, 1.0, 0.5])


def test_merged_meshes_keep_all_their_triangles() -> None:
    whole = merge([make("box"), make("sphere").moved(pose_matrix((9.0, 0.0, 0.0)))])
    assert volume(whole) == pytest.approx(volume(make("box")) + volume(make("sphere")), rel=1e-4)


def test_surface_points_lie_on_the_surface_and_cover_faces_by_their_area() -> None:
    points = make("box").surface_points(6000, np.random.default_rng(0))
    on_face = np.isclose(np.abs(points), np.array([0.5, 1.0, 1.5]), atol=1e-5)
    assert np.all(on_face.any(axis=1))
    area = np.array([2 * 6.0, 2 * 3.0, 2 * 2.0])
    assert on_face.mean(axis=0) == pytest.approx(area / area.sum(), abs=0.03)


def test_meshes_and_normals_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 vertices but 2 normals"):
        Mesh(np.zeros((3, 3), np.float32), np.zeros((2, 3), np.float32), np.zeros((1, 3), np.int32))


# ---------------------------------------------------------------------- files
@pytest.mark.parametrize("ending", ["stl", "obj", "glb"])
def test_a_mesh_file_is_read_in_its_own_units(tmp_path: Path, ending: str) -> None:
    import trimesh

    trimesh.creation.box(extents=(20.0, 30.0, 40.0)).export(tmp_path / f"part.{ending}")
    mesh = load_mesh(tmp_path / f"part.{ending}", scale=0.001, max_triangles=500)
    assert np.ptp(mesh.vertices_V3, axis=0) == pytest.approx([0.02, 0.03, 0.04], rel=1e-4)
    assert volume(mesh) == pytest.approx(0.02 * 0.03 * 0.04, rel=1e-4)
    assert mesh.closed


def test_a_box_from_a_file_has_sharp_edges_and_a_ball_is_smooth(tmp_path: Path) -> None:
    import trimesh

    trimesh.creation.box(extents=(1, 1, 1)).export(tmp_path / "box.stl")
    trimesh.creation.icosphere(subdivisions=2, radius=1.0).export(tmp_path / "ball.stl")
    box = load_mesh(tmp_path / "box.stl", 1.0, 500)
    assert np.abs(box.normals_V3).max(axis=1) == pytest.approx(1.0, abs=1e-5)
    ball = load_mesh(tmp_path / "ball.stl", 1.0, 500)
    assert np.einsum("vd,vd->v", ball.normals_V3, ball.vertices_V3) == pytest.approx(1.0, abs=0.02)


def test_a_large_mesh_is_simplified(tmp_path: Path) -> None:
    import trimesh

    trimesh.creation.icosphere(subdivisions=4, radius=1.0).export(tmp_path / "ball.stl")
    mesh = load_mesh(tmp_path / "ball.stl", 1.0, max_triangles=300)
    assert len(mesh.triangles_T3) <= 310
    assert volume(mesh) == pytest.approx(4 / 3 * np.pi, rel=0.05)


def test_a_mesh_wound_inside_out_is_turned(tmp_path: Path) -> None:
    import trimesh

    box = trimesh.creation.box(extents=(1, 1, 1))
    box.invert()
    box.export(tmp_path / "box.stl")
    assert volume(load_mesh(tmp_path / "box.stl", 1.0, 500)) == pytest.approx(1.0)


def test_an_open_mesh_is_drawn_from_both_sides(tmp_path: Path) -> None:
    import trimesh

    sheet = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]])
    sheet.export(tmp_path / "sheet.stl")
    assert not load_mesh(tmp_path / "sheet.stl", 1.0, 500).closed


def test_a_missing_or_broken_mesh_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not found"):
        load_mesh(tmp_path / "nothing.stl", 1.0, 500)
    (tmp_path / "broken.glb").write_text("this is no mesh")
    with pytest.raises(InputError, match=r"broken\.glb"):
        load_mesh(tmp_path / "broken.glb", 1.0, 500)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v 0 0\nv 1 0\nv 0 1\nf 1 2 3\n", "corners that are not there"),
        ("v 0 0 0\nv 1e7 0 0\nv 0 1e7 0\nf 1 2 3\n", "far too large"),
    ],
)
def test_a_damaged_mesh_is_refused_with_its_name(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.obj").write_text(text)
    with pytest.raises(InputError, match=rf"a\.obj: .*{words}"):
        load_mesh(tmp_path / "a.obj", 1.0, 1000)


def write_glb(path: Path, **changes: object) -> Path:
    """A ball as GLB, with other entries in the description of its first array of numbers, or of its node."""
    import trimesh

    content: bytes = trimesh.creation.icosphere(subdivisions=1).export(file_type="glb")
    length = int.from_bytes(content[12:16], "little")
    header = json.loads(content[20 : 20 + length])
    for name, value in changes.items():
        header["nodes" if name in ("matrix", "mesh") else "accessors"][0 if name != "matrix" else -1][name] = value
    if header["accessors"][0].get("bufferView", 0) is None:
        del header["accessors"][0]["bufferView"]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4)
    rest = content[20 + length :]
    head = b"glTF" + struct.pack("<III", 2, 20 + len(text) + len(rest), len(text)) + b"JSON"
    path.write_bytes(head + text + rest)
    return path


@pytest.mark.parametrize("count", [10**9, -1, 1e300, "9"])
def test_a_glb_that_announces_more_numbers_than_it_holds_is_refused_before_room_is_made(
    tmp_path: Path, count: object
) -> None:
    assert len(load_mesh(write_glb(tmp_path / "whole.glb"), 1.0, 500).triangles_T3) == 80
    with pytest.raises(InputError, match=r"a\.glb: not a readable mesh"):
        load_mesh(write_glb(tmp_path / "a.glb", bufferView=None, count=count), 1.0, 500)


@pytest.mark.parametrize("number", [1e30, 1e300, -1e30])
def test_a_mesh_far_away_from_the_origin_is_refused(tmp_path: Path, number: float) -> None:
    """Its extent is small, but its numbers are too large to compute with."""
    matrix = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, number, 0, 0, 1]
    with pytest.raises(InputError, match=r"a\.glb: the mesh is far too large, or far away"):
        load_mesh(write_glb(tmp_path / "a.glb", matrix=matrix), 1.0, 500)


@pytest.mark.skipif(os.name == "nt", reason="there are no pipes among files")
def test_a_mesh_reads_no_other_files(tmp_path: Path) -> None:
    """A mesh may name its materials and its numbers in other files, and those could be anything."""
    os.mkfifo(tmp_path / "endless.mtl")
    (tmp_path / "a.obj").write_text("mtllib endless.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nusemtl x\nf 1 2 3\n")
    assert len(load_mesh(tmp_path / "a.obj", 1.0, 500).triangles_T3) == 1
