"""A pytest plugin for runs in which one failure is enough: the same examples each time, and no
search for the smallest that fails."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile(
    "quick", derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("quick")
