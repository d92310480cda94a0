"""Results for people and programs: progress line, closing table, JSON, saved potentials, picture."""
