"""What flows through the states of one layer on the way from a baseline to the input, by captum."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from captum.attr import LayerConductance
from torch import Tensor, nn
from tqdm.auto import tqdm

from attnprobe.example import Example
from attnprobe.methods import Scores, Size, methods
from attnprobe.methods.gradient import SOUNDS, answer_in_one_pass, precise
from attnprobe.methods.paths import allowed, starts, until_complete, warn_of_gap
from attnprobe.models.evaluator import batch_size, even_batches, halving, targets
from attnprobe.models.layer_inputs import LayerInput, layer_input
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget


def _points(steps: int, length: int) -> tuple[int, int]:
    """Points a batch, and in all: batches share a point, since differences of neighbours are taken."""
    size = max(2, min(steps + 1, even_batches(steps, max(1, batch_size(length) - 1)) + 1))
    return size, steps + -(-steps // (size - 1))


def _passes(size: Size, options: Mapping[str, Any]) -> tuple[int, int]:
    points = 2 * _points(options["n_steps"], size.n_tokens)[1]
    return points + 2, points


@methods.add(
    family="gradient",
    source="Dhamdhere et al. 2019; captum LayerConductance",
    formula="Σ_d ∫₀¹ ∂y/∂x^l_{jd} dx^l_{jd}(t), x^l: input of layer l on the line from E′ to E",
    cost="2 m F, 2 m B (m = n_steps)",
    signed=True,
    passes=_passes,
    lacks=SOUNDS,
)
def layer_conductance(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layer: int = -1,
    baseline: str | Tensor | None = None,
    n_steps: int = 25,
    tolerance: float = 0.05,
    max_steps: int = 400,
) -> Scores:
    """Change of the target that flows through each position's state at a layer's input; target units, signed.

    layer: whose input (negative: from the last); of an encoder-decoder a layer of the encoder. The states of all
    positions are a full cut, so the scores add up to y − y(baseline); at a high layer a position holds more than its
    own token. baseline and steps as in integrated_gradients, on the line of word vectors; the line is gone both ways,
    since captum takes the gradient where a step begins, and the mean takes it at both ends.
    """
    entry = layer_input(model, example, layer)
    ((name, start),) = starts(model, example, baseline).items()
    ends = targets(model, [Row(example), Row(example, embeddings=start)], target).double()
    change = float(ends[0] - ends[1])
    most = allowed(tolerance, change, float(ends.abs().max()), start.dtype)
    end = precise(model.embed(example))
    with tqdm(desc="layer conductance", delay=1.0, leave=False, unit="point") as bar:
        run = partial(_conductance, model, example, target, entry, end, precise(start), bar)
        values, gap, steps = until_complete(run, change, most, n_steps, max_steps)
    warn_of_gap("layer_conductance", gap, change, most, f"after {steps} steps")
    used = {"baseline": name, "n_steps": steps, "change": change, "where": entry.name}
    return Scores(values, residual=gap, used=used)


def _conductance(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    entry: LayerInput,
    end: Tensor,
    start: Tensor,
    bar: tqdm,
    steps: int,
) -> Tensor:
    forward, cut = _with_a_cut(model, example, target, entry, bar)
    method = LayerConductance(forward, cut)

    def run(size: int) -> Tensor:
        # The trapezoid's points: they include both ends of the line, so the differences add up to all of it.
        options = {"n_steps": steps, "method": "riemann_trapezoid", "internal_batch_size": max(2, size)}
        there = method.attribute(end[None].clone(), baselines=start[None], **options)
        back = method.attribute(start[None].clone(), baselines=end[None], **options)
        return (there - back)[0].sum(-1).detach() / 2  # type: ignore[no-any-return]

    return halving(run, _points(steps, example.n_tokens)[0], "steps")


def _with_a_cut(
    model: Model, example: Example, target: ResolvedTarget, entry: LayerInput, bar: tqdm
) -> tuple[Callable[[Tensor], Tensor], nn.Module]:
    """captum's forward function of embeddings, and a module of our own that the states of the layer pass through.

    Blocks take their states among other arguments, by place or by name; captum watches modules with a single output.
    """
    cut, ask = nn.Identity(), partial(answer_in_one_pass, model, example, target, None, model.embed(example).dtype)

    def forward(rows: Tensor) -> Tensor:
        with entry.through(lambda states: cut(precise(states)).to(states.dtype), len(rows)):
            found = ask(rows)
        bar.update(len(rows))
        return found

    return forward, cut
