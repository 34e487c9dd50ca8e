"""The command line: plain functions, one file a command; torch is imported inside them, so that --help is quick."""
