"""P, the alignment of Gromov-Wasserstein: the cross moment that a plan gives, and the moves this gives to P."""
