"""What a result was made with, so that it can be made again."""

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("attnprobe", "torch", "transformers", "captum", "scipy", "numpy", "pandas")


def provenance() -> dict[str, str]:
    """Versions of attnprobe and of what it rests on, of Python, and the kind of machine (no names, no paths)."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found["python"] = platform.python_version()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    return found
