"""Published trends on models trained here: tasks, measures, figures and the page of benchmarks/trends.py."""
