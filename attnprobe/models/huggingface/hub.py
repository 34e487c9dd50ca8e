"""Whether the Hub can be reached; its own client tries for half a minute before it gives up."""

import os
import socket
from urllib.parse import urlsplit

PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
SECONDS = 3.0


def hub_answers() -> bool:
    """Whether the Hub's host takes a connection within some seconds; True where only its client can know."""
    if os.environ.get("HF_HUB_OFFLINE") or any(os.environ.get(name) for name in PROXIES):
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=SECONDS).close()
    except OSError:
        return False
    return True
