"""What a scheduler tells of itself to those who watch it: figures, and the places where they go."""
