"""What happens when, frame by frame: the contract between the operator (who decides) and the renderer (who draws).

Shape legend: F frames, C components of the product (in the procedure's order), H = 2 hands (0 left, 1 right).
All poses are 4x4 float32 matrices from the local frame to the world. The world is right-handed, in metres, z up,
with the table's surface at z = 0 and the seated person at negative y, looking towards positive y.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class PartPlace(IntEnum):
    """Where a component is. The state label follows from it: SEATED is 1, WRONG is -1, the rest is 0."""

    TABLE = 0  # lies on the table, or is held in a hand on its way: `part_pose_FC44` says where
    SEATED = 1  # in the assembly, correctly: drawn at its assembled pose relative to `object_pose_F44`
    WRONG = 2  # in the assembly, wrongly: drawn at the wrong pose number `wrong_choice_FC`
    AWAY = 3  # not in the scene


@dataclass(frozen=True)
class Timeline:
    """One recording before it is drawn."""

    fps: float
    camera_pose_F44: NDArray[np.float32]  # OpenGL convention: looks along its -z, its +y is up in the image
    object_pose_F44: NDArray[np.float32]  # the assembly's frame
    part_place_FC: NDArray[np.uint8]  # PartPlace
    part_pose_FC44: NDArray[np.float32]  # used where the place is TABLE
    wrong_choice_FC: NDArray[np.uint8]  # which of the component's wrong poses, where the place is WRONG
    hand_pose_FH44: NDArray[np.float32]  # wrist frame: +x along the fingers, +z out of the back of the hand
    hand_curl_FH: NDArray[np.float32]  # 0 flat open hand .. 1 fist; fingers around a part are about 0.6
    hand_visible_FH: NDArray[np.bool_]
    elbow_FH3: NDArray[np.float32]  # where the forearm comes from
    tool_pose_F44: NDArray[np.float32]  # +x from the handle to the tip, origin at the tip
    tool_visible_F: NDArray[np.bool_]
    activity_F: NDArray[np.uint8]  # index into `activity_names`, for looking at and for statistics
    activity_names: tuple[str, ...]

    @property
    def n_frames(self) -> int:
        return int(self.camera_pose_F44.shape[0])

    @property
    def n_components(self) -> int:
        return int(self.part_place_FC.shape[1])

    def states_FC(self) -> NDArray[np.int8]:
        """The label of every component in every frame: 1 correct, -1 wrong, 0 absent."""
        states = np.zeros(self.part_place_FC.shape, dtype=np.int8)
        states[self.part_place_FC == PartPlace.SEATED] = 1
        states[self.part_place_FC == PartPlace.WRONG] = -1
        return states
