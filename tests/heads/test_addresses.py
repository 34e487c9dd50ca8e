"""Addresses of heads: every form means the same head, and a wrong one says what there is."""

import numpy as np
import pytest

from attnprobe import Head, head_of
from attnprobe.errors import InputError
from attnprobe.heads.addresses import heads_named, heads_of_stack
from tests import tiny


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert")


@pytest.fixture(scope="module")
def t5():
    return tiny.loaded("t5")


FORMS = ["2.1", (2, 1), [2, 1], "L2H1", "l2h1", " 2.1 ", "encoder.2.1", "self.2.1", "encoder.self.2.1",
         "encoder.self.L2H1", Head("encoder", "self", 2, 1)]  # fmt: skip


@pytest.mark.parametrize("address", FORMS, ids=str)
def test_every_form_means_the_same_head(bert, address):
    assert head_of(bert, address) == Head("encoder", "self", 2, 1)


def test_a_head_that_is_written_is_read_again(t5):
    for stack in t5.stacks:
        for head in heads_of_stack(stack):
            assert head_of(t5, str(head)) == head
            assert head.where == {"stack": stack.name, "kind": stack.kind}
            assert head.short == f"{head.layer}.{head.head}"


@pytest.mark.parametrize(
    ("address", "stack", "kind"),
    [
        ("1.3", "decoder", "cross"),  # the attention that explains an answer
        ((1, 3), "decoder", "cross"),
        ("decoder.cross.1.3", "decoder", "cross"),
        ("cross.1.3", "decoder", "cross"),
        ("decoder.self.1.3", "decoder", "self"),
        ("encoder.1.3", "encoder", "self"),
        ("encoder.self.L1H3", "encoder", "self"),
    ],
)
def test_of_several_stacks_the_one_that_is_named(t5, address, stack, kind):
    assert head_of(t5, address) == Head(stack, kind, 1, 3)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("3.0", "layers 0 to 2, heads 0 to 3; got layer 3"),
        ("0.4", "layer 0 heads 0 to 3; got head 4"),
        ((0, 9), "heads 0 to 3; got head 9"),
        ((-1, 0), "layers 0 to 2, heads 0 to 3; got layer -1"),
        (Head("encoder", "self", 0, 7), "heads 0 to 3"),
        ("decoder.0.0", "encoder.self"),
        ("five", "5.1, .*L5H1"),
        ("5", "names no head"),
        ("5.1.2", "names no head"),
        ((1, 2, 3), "names no head"),
        ((1.0, 2), "names no head"),
        ((True, 1), "names no head"),
        (None, "names no head"),
        ("", "names no head"),
    ],
)
def test_a_wrong_address_names_what_there_is(bert, address, said):
    with pytest.raises(InputError, match=said):
        head_of(bert, address)


@pytest.mark.parametrize("address", ["decoder.1.3", "self.1.3"])
def test_a_name_that_fits_several_stacks_is_refused_with_their_names(t5, address):
    with pytest.raises(InputError, match=r"several are meant .*decoder\.self"):
        head_of(t5, address)


def test_several_addresses_name_each_head_once_in_order(bert):
    found = heads_named(bert, ["2.1", (0, 3), "L2H1"])
    assert [str(head) for head in found] == ["encoder.self.2.1", "encoder.self.0.3"]
    assert heads_named(bert, "2.1") == heads_named(bert, (2, 1)) == (found[0],)
    assert heads_named(bert, found[0]) == (found[0],)


def test_numbers_of_numpy_are_numbers(bert):
    table = np.array([[2, 1], [0, 3]])
    assert head_of(bert, (np.int64(2), 1)) == head_of(bert, table[0]) == head_of(bert, "2.1")
    assert heads_named(bert, table) == heads_named(bert, ["2.1", "0.3"])
    assert heads_named(bert, table[1]) == heads_named(bert, "0.3")
    with pytest.raises(InputError, match="names no head"):
        head_of(bert, np.array([2.0, 1.0]))


@pytest.mark.parametrize("given", [5, None, [5]])
def test_what_names_no_heads_is_refused(bert, given):
    with pytest.raises(InputError, match="names no head"):
        heads_named(bert, given)


def test_heads_of_a_stack_come_layer_by_layer(bert):
    heads = heads_of_stack(bert.stacks[0])
    assert [head.short for head in heads] == [f"{layer}.{head}" for layer in range(3) for head in range(4)]
