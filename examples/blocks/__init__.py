"""A recipe: train SmolLM2-135M-Instruct on ASCII puzzles with PEFT, and test it on puzzles it has not seen."""
