"""Attention without a plain (query, key) matrix: banded, blocked, hashed, sampled; laid out as one.

A layout is a function registered under the class name of an attention module. It gets one `Run` of such a module (what
went in, what came out, and the calls of torch that ran inside) and gives back one or more `LaidOut`. The folder is
scanned: adding a layout touches one file.
"""

from attnprobe.models.huggingface.sparse.layouts import Call, LaidOut, Run, layout, layout_of

__all__ = ["Call", "LaidOut", "Run", "layout", "layout_of"]
