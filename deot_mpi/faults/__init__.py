"""What watches over a run: checkpoints, requests to stop, agents that are lost."""
