"""Long work that leads start."""
