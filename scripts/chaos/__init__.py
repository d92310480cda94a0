"""Runs with faults: an agent that misbehaves on plan, plans drawn from a seed, and what must come of each."""
