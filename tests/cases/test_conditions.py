"""What a model must not be while it is recorded: refused by name, with the way out; or seen through."""

import threading

import pytest
import torch
import transformers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import CaptureError
from attnprobe.intervention import silence_head
from attnprobe.models import load
from attnprobe.models.huggingface.conditions import check_conditions, uncompiled
from tests import tiny

IDS = torch.tensor([tiny.IDS])


def resting(module):
    """In evaluation, as every part is while it is asked; exported graphs refuse to be told so."""
    for part in module.modules():
        part.training = False
    return module


class TestRecomputing:
    @pytest.fixture
    def checkpointed(self):
        module = tiny.build("llama", "sdpa")
        module.activation_checkpointing_enable()
        return module

    def test_layers_that_run_again_in_the_backward_pass_are_refused(self, checkpointed):
        with pytest.raises(
            CaptureError, match=r"'model' \(LlamaModel\).* a second time .*activation_checkpointing_disable"
        ):
            check_conditions(checkpointed.train())

    def test_they_run_once_in_evaluation_or_without_gradients(self, checkpointed):
        check_conditions(checkpointed.eval())
        with torch.no_grad():
            check_conditions(checkpointed.train())

    def test_a_capture_borrows_evaluation_mode_so_nothing_is_recomputed(self, checkpointed):
        model, plain = load(checkpointed.train()), load(tiny.build("llama", "sdpa"))
        gradients = []
        for each in (model, plain):
            capture = each.capture(each.example(tiny.IDS), differentiable=True)
            assert len(capture.sites) == 3
            gradients.append(torch.autograd.grad(capture.logits[0, -1, 3], [s.weights for s in capture.sites]))
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
        assert checkpointed.training

    def test_torchs_own_wrapper_recomputes_in_every_mode(self):
        module = tiny.build("llama", "sdpa")
        module.model.layers[1] = checkpoint_wrapper(module.model.layers[1])
        with pytest.raises(CaptureError, match=r"'model\.layers\.1' \(CheckpointWrapper\)"):
            check_conditions(resting(module))
        with torch.no_grad():
            check_conditions(module)
        model, plain = load(module), load(tiny.build("llama", "sdpa"))
        example = plain.example(tiny.IDS)
        assert torch.equal(model.capture(example).logits, plain.capture(example).logits)


class TestTraining:
    @pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
    def test_weights_after_dropout_are_refused(self, name):
        module = tiny.build(name, "sdpa").train()
        model = load(module)
        example = tiny.example(model, name)
        with pytest.raises(CaptureError, match=r"after dropout; call model\.eval\(\)"), model.listening(Tape()):
            module(**example.inputs)

    @pytest.mark.parametrize("name", ["bert", "llama"])
    def test_a_capture_is_without_dropout_and_gives_the_mode_back(self, name):
        module = tiny.build(name, "sdpa").train()
        model, plain = load(module), load(tiny.build(name, "sdpa"))
        found, expected = (m.capture(m.example(tiny.IDS)) for m in (model, plain))
        assert torch.equal(found.weights(), expected.weights()) and torch.equal(found.logits, expected.logits)
        assert all(part.training for part in module.modules())


class TestProcesses:
    def test_shards_are_refused(self):
        class FSDPModule(torch.nn.Module):
            pass

        class FSDPLlama(FSDPModule):
            pass

        with pytest.raises(CaptureError, match=r"the model \(FSDPLlama\) is sharded by FSDP"):
            check_conditions(resting(FSDPLlama()))

    def test_a_share_of_the_heads_is_refused(self):
        module = resting(tiny.build("llama"))
        module._tp_size = 2
        with pytest.raises(CaptureError, match=r"tensor parallel.*only a share of its heads"):
            check_conditions(module)
        module._tp_size = 1
        check_conditions(module)

    def test_copies_on_several_devices_are_refused_and_a_single_one_is_not(self):
        wrapped = resting(torch.nn.DataParallel(tiny.build("bert")))
        check_conditions(wrapped)
        wrapped.device_ids = [0, 1]
        with pytest.raises(CaptureError, match=r"\(DataParallel\) runs as copies"):
            check_conditions(wrapped)


class Logits(torch.nn.Module):
    """A model that takes ids alone and gives logits alone."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, input_ids):
        return self.module(input_ids=input_ids).logits


class TestGraphs:
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    def test_torchscript_with_attention_is_refused_and_without_is_not(self, implementation):
        module = tiny.build("bert", implementation)
        traced = torch.jit.trace(Logits(module), IDS, check_trace=False)
        with pytest.raises(CaptureError, match="TorchScript module with attention"):
            check_conditions(resting(traced))
        output = module.bert.encoder.layer[1].output
        output.dense = torch.jit.trace(output.dense, torch.rand(1, 12, 48))
        check_conditions(module)
        model, plain = load(module), load(tiny.build("bert", implementation))
        found, expected = (m.capture(m.example(tiny.IDS)).weights() for m in (model, plain))
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    def test_an_exported_graph_with_attention_is_refused_and_a_traced_part_without_is_not(self, implementation):
        module = tiny.build("bert", implementation)
        exported = torch.export.export(Logits(module), (IDS,)).module()
        with pytest.raises(CaptureError, match="exported graph"):
            check_conditions(resting(exported))
        module.bert.encoder.layer[1].output = torch.fx.symbolic_trace(module.bert.encoder.layer[1].output)
        check_conditions(module)
        assert load(module).capture(load(module).example(tiny.IDS)).weights().shape == (3, 4, 12, 12)


def compiled(how):
    """A Llama of which layers were compiled, in one of the ways that there are; and compiled once by a first pass."""
    torch._dynamo.reset()
    module = tiny.build("llama", "sdpa")
    layers = module.model.layers
    if how == "a layer in its place":
        layers[1] = torch.compile(layers[1], backend="eager")
    if how == "a layer by itself":
        layers[1].compile(backend="eager")
    if how == "the whole by itself":
        module.compile(backend="eager")
    with torch.no_grad():
        module(IDS)
    return module


WAYS = ("a layer in its place", "a layer by itself", "the whole by itself")


class TestCompiling:
    @pytest.mark.parametrize("how", WAYS)
    def test_compiled_parts_run_as_they_were_written_within_the_block(self, how):
        module, plain = compiled(how), load(tiny.build("llama", "sdpa"))
        check_conditions(module)
        model = load(module)
        for edits in ([], [silence_head(1, 1)]):
            with uncompiled():
                found = model.capture(model.example(tiny.IDS), edits=edits, keep=Keep.of("weights", "z"))
            expected = plain.capture(plain.example(tiny.IDS), edits=edits, keep=Keep.of("weights", "z"))
            assert torch.equal(found.weights(), expected.weights()) and torch.equal(found.logits, expected.logits)

    @pytest.mark.parametrize("how", WAYS)
    def test_a_capture_sees_through_compiled_parts(self, how):
        model, plain = load(compiled(how)), load(tiny.build("llama", "sdpa"))
        found, expected = (m.capture(m.example(tiny.IDS)) for m in (model, plain))
        assert torch.equal(found.weights(), expected.weights()) and torch.equal(found.logits, expected.logits)

    def test_a_whole_model_from_torch_compile_is_seen_through(self):
        module = tiny.build("llama", "eager")
        model, plain = load(torch.compile(module, backend="eager")), load(module)
        found, expected = (m.capture(m.example(tiny.IDS)).weights() for m in (model, plain))
        assert torch.equal(found, expected)

    def test_a_generation_that_compiles_its_steps_is_recorded_as_one_that_does_not(self):
        steps = []
        for config in (None, transformers.CompileConfig(backend="eager", fullgraph=False)):
            module = tiny.build("llama", "sdpa")
            options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static"}
            if config is not None:
                config._compile_all_devices = True  # as on a GPU, where a static cache is compiled by itself
                options["compile_config"] = config
            tape = Tape(keep=Keep.of("weights"))
            with uncompiled(), load(module).listening(tape), torch.no_grad():
                module.generate(IDS, **options)
            steps.append([site.weights for site in tape.sites])
        assert len(steps[0]) == 9
        assert all(torch.equal(a, b) for a, b in zip(*steps, strict=True))

    def test_the_stance_is_back_when_the_last_of_overlapping_blocks_ends(self):
        traced = []

        def note(graph, _):
            traced.append(graph)
            return graph.forward

        def run(size):
            """Whether a function is compiled now; a shape of its own each time."""
            torch._dynamo.reset()
            before = len(traced)
            torch.compile(lambda x: x + 1, backend=note)(torch.zeros(size))
            return len(traced) > before

        first, second = uncompiled(), uncompiled()
        assert run(1)
        first.__enter__()
        thread = threading.Thread(target=second.__enter__)
        thread.start()
        thread.join()
        assert not run(2)
        first.__exit__(None, None, None)
        assert not run(3)
        second.__exit__(None, None, None)
        assert run(4)

    def test_the_stance_is_back_after_an_error(self):
        with pytest.raises(ZeroDivisionError), uncompiled():
            raise ZeroDivisionError
        assert torch._dynamo.eval_frame._stance.stance == "default"
