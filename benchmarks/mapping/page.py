"""The page of the study: numbers from the tables, put into words."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from attnprobe.appearance import number, percent, scientific
from attnprobe.judgement import JUDGES
from attnprobe.judgement.rule import EXPLAINS, UNDECIDED, VERDICTS
from attnprobe.provenance import provenance
from benchmarks.mapping.formats import markdown, mean, p_value, pick, share, wrapped
from benchmarks.mapping.naming import ANY, ELEMENT, is_head
from benchmarks.mapping.sides import SIDES
from benchmarks.mapping.tables import FOCUS
from benchmarks.mapping.words import TEXT

Tables = Mapping[str, pd.DataFrame]
METRICS = ("comprehensiveness", "sufficiency", "deletion_area")
REST = "mean of heads, layer 11"
# Layers whose means are in the tables only.
LOW = tuple(f"mean of heads, layer {layer}" for layer in range(8))


# ---------------------------------------------------------------- the first claim


def maps_rows(made: Tables) -> str:
    """Maps as maps of atoms, on whole reactions."""
    table, rows = made["maps_of_atoms"], []
    for name in (name for name in dict.fromkeys(table["map"]) if name not in LOW):
        same, free = (pick(table, map=name, among=among) for among in (ELEMENT, ANY))
        label = f"head ({name.replace('.', ', ')})" if "." in name else name
        rows.append({"map": label, "among atoms of the same element": share(same), "among all": share(free)})
    chances = {among: percent(table[table.among == among].chance.iloc[0], 0) for among in (ELEMENT, ANY)}
    return markdown([*rows, dict(zip(rows[0], ("chance", *chances.values()), strict=True))])


def template_rows(made: Tables) -> str:
    """The mapping head and others by template."""
    table = made["maps_of_atoms_by_template"]
    table, rows = table[table.among == ELEMENT], []
    for template in dict.fromkeys(table.template):
        of = {name: pick(table, template=template, map=name) for name in ("10.5", REST, "rollout")}
        row = {"template": template, "head (10, 5)": share(of["10.5"]), REST: share(of[REST])}
        one = of["rollout"]
        row |= {"rollout": share(one), "chance": percent(one.chance, 0), "atoms": one.n_atoms}
        rows.append(row)
    return markdown(rows)


def head_facts(made: Tables, names: pd.DataFrame) -> dict[str, Any]:
    """What is said of heads."""
    table = made["head_accuracy"]
    table = table[table.among == ELEMENT]
    others = table[table["head"] != 5]
    best, focus, other = table.iloc[0], pick(table, layer=10, head=5), others.iloc[0]
    upper = table[(table["head"] == 5) & (table.layer >= 4)]
    paired = pick(made["heads_paired"], map=f"{best.layer}.{best['head']}") if best.layer != 10 else None
    row = pick(made["silenced_heads"], layer=10, head=5)
    return {
        "n_atoms": focus.n_atoms,
        "n_reactions": focus.n_reactions,
        "focus": share(focus),
        "focus_place": int((table.share > focus.share).sum()) + 1,
        "best": f"({best.layer}, {best['head']})",
        "best_share": share(best),
        "best_against": "" if paired is None else f"{mean(paired, 'difference', 3)}, Holm {p_value(paired.p_holm)}",
        "upper": f"{percent(upper.share.min(), 0)} to {percent(upper.share.max(), 0)}",
        "other": f"({other.layer}, {other['head']})",
        "other_share": share(other),
        "median": percent(table.share.median(), 0),
        "chance": percent(focus.chance, 0),
        "n_heads": int(is_head(names[["map"]].drop_duplicates()).sum()),
        "rollout": share(pick(made["maps_of_atoms"], map="rollout", among=ELEMENT)),
        "silenced_place": int((made["silenced_heads"].fall > row.fall).sum()) + 1,
        "silenced": mean(row, "fall", 3),
        "silenced_best": silenced_best(made),
    }


def silenced_best(made: Tables) -> str:
    """The heads whose silencing costs most, and how many sources they name."""
    told = []
    for _, row in made["silenced_heads"].head(3).iterrows():
        layer, head = int(row.layer), int(row["head"])
        named = pick(made["head_accuracy"], layer=layer, head=head, among=ELEMENT)
        told.append(f"({layer}, {head}) with {mean(row, 'fall')}, which names {percent(named.share, 0)}")
    return "; ".join(told)


# ---------------------------------------------------------------- the second claim


def verdict_table(made: Tables) -> str:
    """Verdicts, quality and the test against random orders of every map."""
    rows = []
    for _, one in made["quality"].iterrows():
        of = {v: pick(made["verdict_shares"], map=one["map"], verdict=v) for v in VERDICTS}
        row = {"map": one["map"], "names the source": share(pick(made["named_when_masked"], map=one["map"], among=ANY))}
        row |= {verdict: share(found) for verdict, found in of.items()}
        row["1 − M above random"] = mean(one, "difference")
        rows.append(row | {"p, Holm": p_value(one.p_holm).removeprefix("p ").removeprefix("= ")})
    return markdown(rows)


def erasure_table(made: Tables) -> str:
    """What erasure says of every map."""
    table, rows = made["erasure"], []
    for name in dict.fromkeys(table["map"]):
        of = {m.replace("_", " "): mean(pick(table, map=name, metric=m)) for m in METRICS}
        rows.append({"map": name} | of)
    for name in ("random", "oracle"):
        of = {m.replace("_", " "): number(table[table.metric == m][name].iloc[0], 2) for m in METRICS}
        rows.append({"map": "random orders" if name == "random" else "the best order found"} | of)
    return markdown(rows)


def pair_rows(made: Tables) -> str:
    """The mapping head against others, by measure."""
    table, rows = made["pairs_of_maps"], []
    for other in (REST, "mean of all heads", "rollout", "value norms", "Chefer 2021b", "leave one out"):
        row = {f"{FOCUS} against": other}
        for measure in ("quality", *METRICS):
            one = pick(table, measure=measure, map_a=FOCUS, map_b=other)
            row[measure.replace("_", " ")] = f"{number(one.difference, 2)} ({p_value(one.p_holm)})"
        rows.append(row)
    return markdown(rows)


def reasons(made: Tables) -> str:
    """Why the mapping head's verdicts are undecided."""
    mine = made["verdicts"][(made["verdicts"]["map"] == FOCUS) & (made["verdicts"].verdict == UNDECIDED)]
    kinds = {
        "no unit is idle under one operator or more": mine.reason.str.contains("no unit is idle"),
        "the operators disagree": mine.reason.str.startswith("the operators disagree"),
        "it ranks some units but not all": mine.reason.str.startswith("it ranks some"),
    }
    told, parts = pd.Series(False, index=mine.index), []
    for words, which in kinds.items():
        parts.append(f"{words}: {int((which & ~told).sum())}")
        told |= which
    return f"{'; '.join(parts)} (of {len(mine)})"


# ---------------------------------------------------------------- why


def context_rows(made: Tables) -> str:
    """What the true token's log-probability loses without parts of the input."""
    names = {
        "sources": "the true source",
        "neighbours": "the atoms bonded to the source",
        "bonded": "the atoms bonded to the masked one",
        "reactants": "all reactants",
        "product": "all of the product",
        "both": "both",
    }
    rows = []
    for gone, words in names.items():
        row = {"gone": words}
        for kind in ("carbon", "other"):
            one = pick(made["contexts"], element=kind, gone=gone)
            label = "carbon" if kind == "carbon" else "another atom"
            row[f"{label}: log p falls by"] = mean(one, "fall", 2, "fall_")
            row[f"{label}: p > 0.5 still"] = percent(one.still_likely, 0)
        rows.append(row)
    return markdown(rows)


def part_rows(made: Tables) -> str:
    """The mean effect of a token by part, and how much of two maps lies there."""
    rows, table = [], made["effects_of_parts"]
    for part in dict.fromkeys(table.part):
        row = {"part": part}
        for kind in ("carbon", "other"):
            for operator in ("mean", "resample"):
                one = pick(table, element=kind, operator=operator, part=part)
                row[f"{'carbon' if kind == 'carbon' else 'another atom'}, {operator}"] = mean(one)
        for name in (FOCUS, REST):
            row[f"share of {name}"] = mean(pick(made["weights_of_parts"], map=name, part=part))
        rows.append(row)
    return markdown(rows)


def side_rows(made: Tables) -> str:
    """Kendall's tau of a few maps and the effects, by side."""
    table, rows = made["agreement_by_side"], []
    for name in (FOCUS, REST, "mean of all heads", "rollout", "value norms", "Chefer 2021b"):
        row = {"map": name}
        for operator in JUDGES:
            for side in SIDES:
                row[f"{side}, {operator}"] = mean(pick(table, map=name, operator=operator, side=side))
        rows.append(row)
    return markdown(rows)


def cause_rows(made: Tables) -> str:
    """Causes and how often they are present."""
    return "; ".join(f"{r.cause.replace('_', ' ')} {r.present} of {r.n}" for r in made["causes"].itertuples())


def effect_facts(made: Tables) -> dict[str, str]:
    """How often the source has the largest effect of the reactant atoms, and how large its effect and others are."""
    table, facts = made["first_by_effect"], {}
    for operator in ("mean", "resample"):
        facts[f"first_{operator}"] = share(pick(table, operator=operator, among=ELEMENT))
        for kind in ("carbon", "other"):
            for key, part in (("source", "source"), ("bonded", "atoms bonded to the masked one"), ("arrow", "arrow")):
                one = pick(made["effects_of_parts"], element=kind, operator=operator, part=part)
                facts[f"{key}_{kind}_{operator}"] = number(one["mean"], 2)
    for kind in ("carbon", "other"):
        for gone in ("reactants", "product"):
            one = pick(made["contexts"], element=kind, gone=gone)
            facts[f"{kind}_{gone}"] = percent(one.still_likely, 0)
    return facts


def verdict_facts(made: Tables) -> dict[str, str]:
    """Numbers of the second claim that sentences need."""
    facts = {}
    for key, name in (("focus", FOCUS), ("mean", REST), ("rollout", "rollout"), ("chefer", "Chefer 2021b")):
        quality = pick(made["quality"], map=name)
        facts[f"{key}_quality"] = number(quality.quality, 2)
        facts[f"{key}_above"] = f"{mean(quality, 'difference')}, Holm {p_value(quality.p_holm)}"
        for verdict in VERDICTS:
            one = pick(made["verdict_shares"], map=name, verdict=verdict)
            facts[f"{key}_{verdict}"] = f"{one['count']} of {one.n}"
        facts[f"{key}_named"] = share(pick(made["named_when_masked"], map=name, among=ANY))
    pair = pick(made["pairs_of_maps"], measure="quality", map_a=FOCUS, map_b=REST)
    told = made["verdict_shares"]
    others = told[(told.verdict == EXPLAINS) & (told["map"] != FOCUS)]
    for key, name in (("focus", FOCUS), ("mean", REST)):
        for end, side in (("", SIDES[0]), ("_reactants", SIDES[1])):
            one = pick(made["agreement_by_side"], map=name, side=side, operator="mean")
            facts[f"tau_{key}{end}"] = mean(one)
    return facts | {
        "most_explains": str(others["count"].max()),
        "focus_against_mean": f"{number(pair.difference, 2)}, Holm {p_value(pair.p_holm)}",
        "random_quality": number(pick(made["quality"], map=FOCUS).random, 2),
    }


def page(made: Tables, found: Sequence[Mapping[str, Any]], names: pd.DataFrame) -> str:
    """The whole page."""
    versions = provenance()
    facts = head_facts(made, names) | effect_facts(made) | verdict_facts(made)
    cost = {
        "n_predictions": len(found),
        "n_judged": len({r["reaction"] for r in found}),
        "n_second": len(found) - len({r["reaction"] for r in found}),
        "n_erased": sum(r["erasure"] is not None for r in found),
        "n_causes": sum(r["causes"] is not None for r in found),
        "right": percent(sum(r["predicted"] == r["token"] for r in found) / len(found), 0),
        "passes": scientific(sum(r["forward_passes"] for r in found)),
        "minutes": f"{sum(r['cpu_seconds'] for r in found) / 60:.0f}",
        "versions": ", ".join(f"{key} {versions[key]}" for key in ("torch", "transformers", "python")),
    }
    blocks = {
        "maps": maps_rows(made),
        "templates": template_rows(made),
        "verdicts": verdict_table(made),
        "reasons": reasons(made),
        "contexts": context_rows(made),
        "parts": part_rows(made),
        "sides": side_rows(made),
        "erasure": erasure_table(made),
        "pairs": pair_rows(made),
        "causes": cause_rows(made),
    }
    return wrapped(TEXT.format(**facts, **cost, **blocks))
