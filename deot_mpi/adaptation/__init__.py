"""Domain adaptation: what a plan carries from labelled source agents to unlabelled target agents."""
