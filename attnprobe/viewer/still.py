"""What stands in a viewer's place where no script runs: a sentence, and the sharpest heads in numbers."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from attnprobe.appearance import number

# Of all heads so many, the sharpest first; and what is said of each, as far as it is known.
MOST = 8
SCORES = ("spread", "largest_weight", "distance", "first_token")
# Run before anything is drawn: by it the style sheet knows that scripts run, and hides what stands in their place.
ALIVE = '<script>document.documentElement.dataset.live="yes"</script>'
HIDDEN = "[data-live] .still{display:none}"
SENTENCE = (
    "Scripts do not run here, so that the attention cannot be drawn. Where a notebook forbids them in frames, save the "
    "view, view(…).save('view.html'), and open that page in a browser."
)


def still(facts: Mapping[str, Any]) -> str:
    """The sentence and a table of heads as HTML. facts: what the viewer's script gets, with `score_facts`."""
    labels = {fact["name"]: fact["label"] for fact in facts.get("score_facts", ())}
    heads = _heads(facts, list(labels))
    shown = [name for name in SCORES if any(scores.get(name) is not None for _, scores in heads)]
    head = "".join(f'<th scope="col">{escape(labels[name])}</th>' for name in shown)
    body = "".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(_cell(scores.get(name)) for name in shown)}</tr>'
        for title, scores in heads
    )
    table = f'<table><thead><tr><th scope="col">Sharpest heads</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="still"><p>{escape(SENTENCE)}</p>{table if shown else ""}</div>'


def _cell(score: float | None) -> str:
    return f"<td>{'–' if score is None else number(score, 2)}</td>"


def _heads(facts: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, dict[str, float | None]]]:
    """The sharpest heads with their scores; of several stacks with the name of theirs."""
    several = len(facts["stacks"]) > 1
    found = [
        (
            f"{stack['name'] + ', ' if several else ''}layer {layer['layer']}, head {head['head']}",
            dict(zip(names, head["scores"], strict=True)),
        )
        for stack in facts["stacks"]
        for layer in stack["layers"]
        for head in layer["heads"]
    ]
    known = [(spread, at) for at, (_, scores) in enumerate(found) if (spread := scores.get(SCORES[0])) is not None]
    return [found[at] for _, at in sorted(known)[:MOST]]
