"""Samples: from files or made, checked, scaled; and the potentials to start from."""
