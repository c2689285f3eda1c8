"""Pictures of Spread: RGB arrays, SVG, and whole episodes as animated SVG or GIF.

Agents are discs of their true size, a little transparent. A landmark is a cross in a ring that has
the radius within which it is covered; while it is, a halo lies around it.
"""

from __future__ import annotations

from dataclasses import dataclass

from omg.envs.drawing import Polygon, Shape, Style, Text, disc
from omg.envs.particles.frame import ParticleFrame
from omg.envs.particles.scene import THEME, WHITE, Scene
from omg.envs.spread.args import AGENT_SIZE, COVER_DISTANCE

HALO, HALO_RIM = "#ffd23f", "#b88a00"
# Wider than an agent that covers the landmark from the side.
_HALO_RADIUS = COVER_DISTANCE + AGENT_SIZE + 0.03
_AGENT_OPACITY, _HALO_OPACITY = 0.78, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFrame(ParticleFrame):
    """Things are landmarks; contacts are pairs of seats that collide."""

    covered: tuple[bool, ...]  # which landmarks have an agent on them


class SpreadScene(Scene[SpreadFrame]):
    """How Spread is drawn."""

    style = Style("spread", "Spread", THEME)
    flash_radii = (0.24, 0.19)

    def things(self, frame: SpreadFrame) -> list[Shape]:
        """The landmarks."""
        radius = COVER_DISTANCE * self.scale(frame)
        shapes: list[Shape] = []
        for point in frame.things:
            x, y = self.at(frame, point)
            shapes += [disc(x, y, radius, fill="none", rim="ink"), _cross(x, y, 0.62 * radius)]
        return shapes

    def lights(self, frame: SpreadFrame) -> list[tuple[list[Shape], bool]]:
        """A halo for each landmark, on while it is covered."""
        radius = _HALO_RADIUS * self.scale(frame)
        halos: list[list[Shape]] = [
            [disc(*self.at(frame, point), radius, fill=HALO, rim=HALO_RIM, opacity=_HALO_OPACITY)]
            for point in frame.things
        ]
        return list(zip(halos, frame.covered, strict=True))

    def agent(self, frame: SpreadFrame, seat: int) -> list[Shape]:
        """A disc around (0, 0) with its seat's number."""
        radius = AGENT_SIZE * self.scale(frame)
        return [
            disc(0, 0, radius, fill=self.colour(frame, seat), rim=WHITE, opacity=_AGENT_OPACITY),
            Text(x=0, y=0, words=str(seat), size=0.8 * radius, fill=WHITE),
        ]

    def touched(self, frame: SpreadFrame, seat: int) -> bool:
        """Whether an agent collides with another."""
        return any(seat in pair for pair in frame.contacts)

    def counted(self, frame: SpreadFrame) -> str:
        """Landmarks covered now, collisions so far."""
        hits = f"{frame.collisions} collision{'' if frame.collisions == 1 else 's'}"
        return f"{sum(frame.covered)} of {len(frame.covered)} covered, {hits}"


def _cross(x: float, y: float, radius: float) -> Polygon:
    """An upright cross."""
    far, near = radius, 0.3 * radius
    right = ((near, -far), (near, -near), (far, -near), (far, near), (near, near), (near, far))
    left = tuple((-dx, -dy) for dx, dy in right)
    return Polygon(x=x, y=y, corners=right + left, fill="ink")


SCENE = SpreadScene()
to_rgb = SCENE.to_rgb
to_svg = SCENE.to_svg
to_animated_svg = SCENE.to_animated_svg
write_gif = SCENE.write_gif
