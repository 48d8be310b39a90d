"""The clock, the memory readings and the observer that writes them down; they watch and never change a step."""
