"""The attention viewer: a capture as a part of a page that stands alone, in a notebook, or in the report.

tokens, sides: what stands along a map. groups, carrying, packing: maps as few bytes. measures: what stands beside the
weights. facts: all of it as the script reads it. markup: the script and pages. viewing: `attnprobe.view`.
"""
