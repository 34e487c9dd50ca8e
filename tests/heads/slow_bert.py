"""A tiny BERT run by hand from its modules, each part given what it reads: single edges are patched one by one."""

import torch

WIDTH = 8  # of a head


class SlowBert:
    """Readings are numbered: 2l is the attention of layer l, 2l + 1 its feed-forward part, the last one the answer."""

    def __init__(self, module, target, clean, corrupt):
        self.module, self.target, self.layers = module, target, module.bert.encoder.layer
        with torch.no_grad():
            self.writes, self.sums, self.states, self.clean = self.run(clean)
            self.corrupt_writes, _, _, self.corrupt = self.run(corrupt)
        self.ids = clean

    def norm(self, reading):
        layer = self.layers[reading // 2]
        return (layer.output if reading % 2 else layer.attention.output).LayerNorm

    def heads(self, layer, asked):
        """What each head writes; asked: by q, k and v what each head reads, [head token d_model]."""
        attention = self.layers[layer].attention
        maps = {"q": attention.self.query, "k": attention.self.key, "v": attention.self.value}
        cut = [slice(head * WIDTH, (head + 1) * WIDTH) for head in range(4)]
        q, k, v = (torch.stack([maps[r](asked[r][head])[:, at] for head, at in enumerate(cut)]) for r in "qkv")
        z = (q @ k.mT / WIDTH**0.5).softmax(-1) @ v
        weight = attention.output.dense.weight
        return torch.stack([z[head] @ weight[:, at].T for head, at in enumerate(cut)])

    def run(self, ids, node=None, given=None):
        """Writes by reading (embedding first), sums before norms, states by reading, and the target.

        node: reads `given` instead of the states.
        """
        x = self.module.bert.embeddings(input_ids=torch.tensor([ids]))[0]
        writes, sums, states = [x], [], []
        for layer, block in enumerate(self.layers):
            for part in ("head", "mlp"):
                states.append(x)
                mine = node is not None and (node.part, node.layer) == (part, layer)
                if part == "head":
                    asked = {reads: x.expand(4, -1, -1).clone() for reads in "qkv"}
                    if mine:
                        asked[node.reads][node.head] = given
                    writes.append(self.heads(layer, asked))
                    sums.append(x + writes[-1].sum(0) + block.attention.output.dense.bias)
                else:
                    writes.append(block.output.dense(block.intermediate(given if mine else x)))
                    sums.append(x + writes[-1])
                x = self.norm(len(sums) - 1)(sums[-1])
        states.append(x)
        read = given if node is not None and node.part == "answer" else x
        answer = self.target(self.module.classifier(self.module.bert.pooler(read[None])))
        return writes, sums, states, float(answer)

    def moved(self, writer):
        """What a node writes on the corrupt input − on the clean one, and the reading behind which it does."""
        at = {"embedding": -1, "head": 2 * writer.layer}.get(writer.part, 2 * writer.layer + 1)
        move = self.corrupt_writes[at + 1] - self.writes[at + 1]
        return (move[writer.head] if writer.part == "head" else move), at

    def arrived(self, writer, reading, norms):
        """What is left of it at a reading; norms: each divides by what it did ("frozen"), or by what it now would."""
        move, at = self.moved(writer)
        for between in range(max(at, 0), reading):
            norm, whole = self.norm(between), self.sums[between]
            if norms == "frozen":
                size = (whole.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
                move = (move - move.mean(-1, keepdim=True)) / size * norm.weight
            else:
                move = norm(whole + move) - norm(whole)
        return move

    @torch.no_grad()
    def patched(self, writer, node, norms):
        """How the target changes when one reader alone reads what one writer wrote on the corrupt input."""
        reading = {"answer": len(self.states) - 1, "head": 2 * node.layer}.get(node.part, 2 * node.layer + 1)
        given = self.states[reading] + self.arrived(writer, reading, norms)
        return self.run(self.ids, node, given)[-1] - self.clean
