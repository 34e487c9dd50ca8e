"""The judgement: whether a map explains a prediction, misleads, or cannot be told, from measured behaviour only."""
