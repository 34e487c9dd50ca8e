"""Ways that a map of attention does not show: past attention altogether, and through other tokens' places."""

from attnprobe.attention.seam import Keep
from attnprobe.intervention import patch
from attnprobe.judgement.causes import Sign, causes, sign_of
from attnprobe.judgement.causes.case import EFFECTIVE, IDLE, Case


@causes.add(family="route", source="Mohebbi et al. 2023; Kobayashi et al. 2021", look_at="integrated_gradients")
def residual_bypass(case: Case, *, threshold: float = 0.5) -> Sign:
    """A token that acts without attention: its content reaches the answer through the residual stream.

    measure: |change of y| when its content is removed while all that attention gives on (z of every head and layer)
    is held as it was, as a share of its effect; the largest of all effective tokens. Present from `threshold` on.
    """
    held = patch(case.model.capture(case.example, keep=Keep.of("z")), "z")
    if not case.effective:
        return sign_of(case, False, 0.0, threshold, (), "No token has an effect.")
    answers = case.without([[], *[[token] for token in case.effective]], (held,))
    shares = (answers[:, 1:] - answers[:, :1]).abs().mean(0) / case.strength
    share = float(shares.max())
    present = share >= threshold
    least = threshold if present else share
    chosen = [token for token, one in zip(case.effective, shares.tolist(), strict=True) if one >= least]
    said = (
        f"With everything that attention gives on held as it was, removing {{units}} still has {share:.2f} of its "
        "effect."
    )
    if present:
        said += " That part of the effect no map of attention can show."
    return sign_of(case, present, share, threshold, chosen, said)


@causes.add(family="route", source="Mohebbi et al. 2023; Abnar & Zuidema 2020", look_at="integrated_gradients")
def mixing_across_layers(case: Case, *, threshold: float = EFFECTIVE) -> Sign:
    """A carrier: what other tokens say passes through its place, and what it says itself does not matter.

    measure: the effect of zeroing its values in all layers (alone or over random orders, the larger), as a share of
    the largest effect of any content. Present from `threshold` on, for a token whose own content has less than a tenth
    of the largest effect under every content operator.
    """
    content = case.relative.amax(0)
    carried = case.value_effects.where(content < IDLE, 0.0)
    token = int(carried.argmax())
    share = float(carried[token])
    present = share >= threshold
    chosen = [int(t) for t in (carried >= threshold).nonzero().flatten()] if present else [token]
    said = (
        f"Zeroing the values of {{units}} has up to {share:.2f} of the largest effect; its own content has at most "
        f"{float(content[chosen].max()):.2f}."
    )
    if present:
        said += (
            " Attention on it may well name where a state is read, which is a relation between places; whose content "
            "makes this prediction is another question."
        )
    return sign_of(case, present, share, threshold, chosen, said)
