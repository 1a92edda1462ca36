"""What the paper asks and how it follows: selectors, constructors of the model, and the baselines that it compares with."""
