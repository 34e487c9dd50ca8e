"""Cases on which tools of this kind fail, each with the right value; the number in a docstring is that of the case."""
