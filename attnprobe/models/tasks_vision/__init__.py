"""Two small tasks with pictures that train on one CPU thread in minutes: `digits` and `shapes`."""
