"""The command line: flags, their values, and what they add up to."""
