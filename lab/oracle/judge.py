"""Processes scenarios with both systems, and reduces a failing scenario to a smallest failing part."""

import random

from lab.oracle.comparison import Comparison, Mismatch
from lab.oracle.scenario import Maker
from lab.oracle.world import random_world


def made(seed, number, count):
    """The world with a number, and its scenarios. The same seed produces the same world and scenarios."""
    pick = random.Random(f"{seed}.{number}")
    world = random_world(pick)
    maker = Maker(world, pick)
    return world, [maker.scenario(f"{seed}.{number}.{index}") for index in range(count)]


class Judge:
    """Processes scenarios with both systems. `forgiven` counts accepted differences by name."""

    def __init__(self, linux, sluice, forgiven):
        self.linux, self.sluice, self.forgiven = linux, sluice, forgiven

    def mismatches(self, world, scenarios):
        """The scenarios with a difference, and the first difference of each."""
        return self._compared(world, scenarios, self.linux.play(world, scenarios), self.sluice.play(world, scenarios))

    def changed(self, worlds, scenarios):
        """Like `mismatches`, for scenarios with steps that are divided into a part for each world."""
        both = (system.play_changed(worlds, scenarios) for system in (self.linux, self.sluice))
        return self._compared(worlds[-1], scenarios, *both)

    def _compared(self, world, scenarios, *played):
        result = []
        both = zip(scenarios, *played)
        for scenario, linux, sluice in both:
            try:
                Comparison(world, scenario, self.forgiven).run(linux, sluice)
            except Mismatch as error:
                result.append((scenario, error))
        return result

    def smallest(self, world, scenario, error):
        """Removes steps from a scenario as long as the results of the systems still differ. The scenario is
        processed without other scenarios."""
        found = self.mismatches(world, [scenario])
        if not found:
            return scenario, f"{error}\n(not so when it is alone)"
        number, last = 0, found[0][1]
        while number < len(scenario.steps):
            fewer = scenario.but(scenario.steps[:number] + scenario.steps[number + 1 :])
            if found := self.mismatches(world, [fewer]):
                scenario, last = fewer, found[0][1]
            else:
                number += 1
        return scenario, last
