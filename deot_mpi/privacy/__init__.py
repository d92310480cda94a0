"""What is added to sketches before they leave, what that guarantees, and what a curious neighbour makes of them."""
