"""What is run by hand or by make: checks and helpers of the repository."""
