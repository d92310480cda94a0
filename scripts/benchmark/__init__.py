"""The parts of scripts/bench.py: problems, peers, rivals, this project's own agents, and the report."""
