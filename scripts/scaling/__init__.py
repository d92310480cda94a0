"""The scaling study: exact counts, a clock for every agent, and what a machine and its links were measured to take."""
