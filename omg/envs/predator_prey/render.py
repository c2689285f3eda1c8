"""Pictures of Predator-Prey: RGB arrays, SVG, and whole episodes as animated SVG or GIF.

Predators are discs, prey are diamonds, obstacles are large plain discs: nothing is told by colour
alone. All have their true size; a diamond's inscribed circle is the prey's body.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from omg.envs.drawing import Polygon, Shape, Style, Text, disc
from omg.envs.particles.frame import ParticleFrame, Point
from omg.envs.particles.scene import THEME, WHITE, Scene
from omg.envs.predator_prey.args import BORDER_BEGIN, OBSTACLE_SIZE, PREDATOR, PREY, SIZE

PREY_FILL, PREY_RIM = "#ffd23f", "#3a2d00"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredatorPreyFrame(ParticleFrame):
    """Predators first; contacts are (predator, prey) by number."""

    n_predators: int

    @property
    def predators(self) -> tuple[Point, ...]:
        """Where predators are."""
        return self.agents[: self.n_predators]

    @property
    def prey(self) -> tuple[Point, ...]:
        """Where prey is."""
        return self.agents[self.n_predators :]


class PredatorPreyScene(Scene[PredatorPreyFrame]):
    """How Predator-Prey is drawn."""

    style = Style("pp", "Predator-Prey", THEME)
    flash_radii = (0.17, 0.11)

    def things(self, frame: PredatorPreyFrame) -> list[Shape]:
        """Where the prey's penalty begins, and the obstacles."""
        radius = OBSTACLE_SIZE * self.scale(frame)
        stones = [
            disc(*self.at(frame, point), radius, fill="stone", rim="pale") for point in frame.things
        ]
        return [self.square(frame, BORDER_BEGIN, fill="none", rim="rim"), *stones]

    def colour(self, frame: PredatorPreyFrame, seat: int) -> str:
        """Predators have their own, prey leaves dark footprints."""
        return super().colour(frame, seat) if seat < frame.n_predators else "ink"

    def agent(self, frame: PredatorPreyFrame, seat: int) -> list[Shape]:
        """A disc or a diamond around (0, 0) with its seat's number."""
        zoom = self.scale(frame)
        if seat < frame.n_predators:
            radius, ink = SIZE[PREDATOR] * zoom, WHITE
            body: Shape = disc(0, 0, radius, fill=self.colour(frame, seat), rim=WHITE)
        else:
            radius, ink = SIZE[PREY] * math.sqrt(2) * zoom, PREY_RIM
            body = _diamond(0, 0, radius)
        return [body, Text(x=0, y=0, words=str(seat), size=0.95 * radius, fill=ink)]

    def mark(self, frame: PredatorPreyFrame, seat: int, x: float, y: float) -> Shape:
        """The same shapes beside the scores."""
        return super().mark(frame, seat, x, y) if seat < frame.n_predators else _diamond(x, y, 8)

    def touched(self, frame: PredatorPreyFrame, seat: int) -> bool:
        """Whether the prey in a seat is in contact with a predator."""
        return any(prey == seat - frame.n_predators for _, prey in frame.contacts)

    def counted(self, frame: PredatorPreyFrame) -> str:
        """Contacts so far."""
        return f"{frame.collisions} contact{'' if frame.collisions == 1 else 's'}"


def _diamond(x: float, y: float, radius: float) -> Polygon:
    corners = ((0.0, -radius), (radius, 0.0), (0.0, radius), (-radius, 0.0))
    return Polygon(x=x, y=y, corners=corners, fill=PREY_FILL, rim=PREY_RIM)


SCENE = PredatorPreyScene()
to_rgb = SCENE.to_rgb
to_svg = SCENE.to_svg
to_animated_svg = SCENE.to_animated_svg
write_gif = SCENE.write_gif
