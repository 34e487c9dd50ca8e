"""What an edit is to the seam: where it acts, and what it may give back."""

from typing import Protocol, runtime_checkable

from attnprobe.errors import EditError
from attnprobe.site import Place, Site


@runtime_checkable
class Edit(Protocol):
    """An intervention: a function from site to site."""

    def __call__(self, site: Site) -> Site: ...


def acts(edit: Edit, place: Place) -> bool:
    """Whether an edit acts at a place; one that does not say where it acts may act everywhere."""
    return bool(getattr(edit, "acts_at", lambda _: True)(place))


def checked(edit: Edit, before: Site, after: object) -> Site:
    """What an edit gave back, or an `EditError` where the model could not go on with it."""
    if not isinstance(after, Site):
        raise EditError(f"an edit takes a Site and returns a Site; {edit} returned {type(after).__name__}")
    z, old = after.z, before.z
    if z is None or (old is not None and (z.shape != old.shape or z.dtype != old.dtype)):
        got = "no z" if z is None else f"z of {tuple(z.shape)} {z.dtype}"
        expected = "" if old is None else f", expected {tuple(old.shape)} {old.dtype}"
        raise EditError(f"{before.place}: the edit {edit} gave {got}{expected}")
    return after
