"""The demo: six weeks of one person's memories in two languages, questions to them, two scenes, timings.

Everything that it prints is computed on the spot. It is asked as of its last message, so it replays the same for ever.
"""

from jiyi.demo.data import DemoData, load
from jiyi.demo.scenes import redis_scene, typescript_scene
from jiyi.demo.show import show

__all__ = ["DemoData", "load", "redis_scene", "show", "typescript_scene"]
