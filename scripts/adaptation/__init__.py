"""The parts of adaptation_table.py."""
