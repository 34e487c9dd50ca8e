"""Attention over retrieved records: an index chooses k records for a query, attention reads those alone.

    search     R_i = the k records with the largest r_i·x_j         retrieval scores of an index over x [record width]
    attend     A_i = softmax over R_i of q_i·k_j · scale,  z_i = sum_j A_ij v_j
    outside    o_i = sum of full attention's weights on records that are not in R_i
               full z_i = (1 - o_i) z_i + o_i · (what attention over the others alone would give)

Retrieval ends where the records are chosen: no gradient passes through that choice, and a record that was not chosen
has weight 0 whatever its score. `outside` says what this leaves out. r and x may be other vectors than q and k.

`Index(x)` compares all records. `Index(x, n_bits=b)` compares those that lie on the query's side of all b random planes
in one of `n_tables` draws: two vectors at an angle t share a side with probability 1 - t/pi (Charikar 2002).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.errors import InputError, NumericsError
from attnprobe.site import softmax


class Found(NamedTuple):
    """Records by falling retrieval score; record -1 and score -inf where fewer than k were compared."""

    record: Int[Tensor, "*batch query k"]
    score: Float[Tensor, "*batch query k"]
    n_compared: Int[Tensor, "*batch query"]


class ReadRecords(NamedTuple):
    """What attention did with the found records, and the share of full attention that lies outside of them."""

    found: Found
    weights: Float[Tensor, "*batch query k"]
    z: Float[Tensor, "*batch query d_value"]
    outside: Float[Tensor, "*batch query"]


@dataclass(frozen=True, eq=False)
class Index:
    """Records [record width] that are searched by inner product: all of them, or (`n_bits`) those in a query's buckets.

    >>> found = Index(torch.eye(3)).search(torch.tensor([[0.0, 1.0, 2.0]]), k=2)
    >>> found.record.tolist(), found.score.tolist()
    ([[2, 1]], [[2.0, 1.0]])
    """

    vector: Float[Tensor, "record width"]
    n_bits: int | None = None
    n_tables: int = 4
    seed: int = 0
    _buckets: tuple[dict[int, list[int]], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.n_bits is not None and (not 0 <= self.n_bits <= 62 or self.n_tables < 1):
            raise InputError(f"0 to 62 bits and 1 or more tables are needed, got {self.n_bits} and {self.n_tables}")
        if self.n_bits is not None:
            object.__setattr__(self, "_buckets", tuple(map(_grouped, self.codes(self.vector))))

    def search(self, query: Float[Tensor, "*batch query width"], k: int) -> Found:
        """The k records with the largest inner product, as far as the index looks; of equals the first ones."""
        width = self.vector.shape[-1]
        if k < 1 or query.shape[-1] != width or not query.numel():
            raise InputError(
                f"a search takes k = 1 or more and queries of width {width}, got {k}, {tuple(query.shape)}"
            )
        if bool(query.isnan().any()):
            raise NumericsError("a query is NaN, and so near to no record; look for where it came from")
        flat = query.detach().reshape(-1, query.shape[-1])
        codes = self.codes(flat).T.tolist() if self._buckets else [[]] * len(flat)
        rows = [self._best(one, k, own) for one, own in zip(flat, codes, strict=True)]
        record, score, n_compared = (torch.stack(column) for column in zip(*rows, strict=True))
        shape = query.shape[:-1]
        return Found(record.reshape(*shape, k), score.reshape(*shape, k), n_compared.reshape(shape))

    def codes(self, vector: Float[Tensor, "item width"]) -> Int[Tensor, "table item"]:
        """The bucket of each vector in each table: one bit a plane, 1 on its positive side."""
        generator = torch.Generator().manual_seed(self.seed)
        n_bits, width = self.n_bits or 0, vector.shape[-1]
        planes = torch.randn(self.n_tables, n_bits, width, generator=generator, dtype=torch.float64)
        sides = torch.einsum("tbw,iw->tib", planes.to(vector), vector.detach()) > 0
        return (sides * 2 ** torch.arange(n_bits, device=vector.device)).sum(-1)

    def _best(self, query: Tensor, k: int, codes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """The best k of the records that one query is compared with."""
        near = {record for table, code in zip(self._buckets, codes, strict=True) for record in table.get(code, [])}
        compared = (
            torch.arange(len(self.vector)) if self.n_bits is None else torch.tensor(sorted(near), dtype=torch.long)
        )
        compared = compared.to(query.device)
        scores = self.vector.detach()[compared] @ query
        order = scores.argsort(descending=True, stable=True)[:k]
        record, score = compared.new_full((k,), -1), scores.new_full((k,), -torch.inf)
        record[: len(order)], score[: len(order)] = compared[order], scores[order]
        return record, score, compared.new_tensor(len(compared))


def attend_found(
    found: Found,
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "record d_head"],
    value: Float[Tensor, "record d_value"],
    *,
    scale: float | None = None,
) -> ReadRecords:
    """Attention of each query over its own found records, and how much of full attention these miss.

    scale: default 1/sqrt(d_head). A query that found nothing gets weights and z of 0, and outside = 1.
    The attention reads k keys a query; `outside` has to look at all of them.
    """
    if found.record.shape[:-1] != query.shape[:-1] or len(key) != len(value):
        raise InputError(
            f"one search result a query and one value a key are needed, got results {tuple(found.record.shape)}, "
            f"queries {tuple(query.shape)}, {len(key)} keys and {len(value)} values"
        )
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    slot = found.record.clamp(min=0)
    scores = torch.einsum("...qd,...qkd->...qk", query, key[slot]) * scale
    weights = softmax(scores.masked_fill(found.record < 0, -torch.inf))
    z = torch.einsum("...qk,...qkv->...qv", weights, value[slot])
    return ReadRecords(found, weights, z, outside_mass(found, query, key, scale=scale))


def outside_mass(
    found: Found,
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "record d_head"],
    *,
    scale: float,
) -> Float[Tensor, "*batch query"]:
    """The share that full attention would put on records that were not found."""
    full = softmax(query @ key.T * scale)
    is_found = torch.zeros_like(full).scatter_add(-1, found.record.clamp(min=0), (found.record >= 0).to(full.dtype)) > 0
    return full.masked_fill(is_found, 0.0).sum(-1)


def over_records(read: ReadRecords, n_records: int) -> Float[Tensor, "*batch query record"]:
    """The weights as a map over all records, 0 where a record was not found: z = map @ value."""
    whole = read.weights.new_zeros((*read.weights.shape[:-1], n_records))
    return whole.scatter_add(-1, read.found.record.clamp(min=0), read.weights)


def _grouped(codes: Tensor) -> dict[int, list[int]]:
    """The records of each bucket of one table."""
    buckets: dict[int, list[int]] = {}
    for record, code in enumerate(codes.tolist()):
        buckets.setdefault(code, []).append(record)
    return buckets
