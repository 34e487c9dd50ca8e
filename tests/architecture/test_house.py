"""The rules of the house (ARCHITECTURE.md), kept by a test. Who may import whom is kept by `lint-imports`."""

import ast
from pathlib import PurePosixPath

from tests.architecture.source import FUNCTIONS, PACKAGE, ROOT, depth_of_classes, imported, nodes, public_methods, trees

LONGEST_FILE = 300
LONGEST_FUNCTION = 50
MOST_METHODS = 10
DEEPEST_CLASS = 2
SAYS_NOTHING = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}

# Training writes a model in Hugging Face format; loading that model goes through models/huggingface like any other.
KNOWS_TRANSFORMERS = ("attnprobe/models/huggingface/", "attnprobe/models/bundled/")


def test_every_folder_of_code_is_a_package():
    folders = {PurePosixPath(file).parent for file in trees()}
    assert [str(folder) for folder in sorted(folders) if f"{folder}/__init__.py" not in trees()] == []
    assert "attnprobe/__init__.py" in trees()


def test_no_file_is_too_long_to_read_in_one_go():
    lines = {file: (ROOT / file).read_text("utf-8").count("\n") for file in trees()}
    assert {file: count for file, count in lines.items() if count > LONGEST_FILE} == {}


def test_no_function_is_longer_than_a_screen():
    lengths = {f"{file}:{node.name}": node.end_lineno - node.lineno + 1 for file, node in nodes(*FUNCTIONS)}
    assert {name: count for name, count in lengths.items() if count > LONGEST_FUNCTION} == {}


def test_no_class_does_everything():
    methods = {f"{file}:{node.name}": len(public_methods(node)) for file, node in nodes(ast.ClassDef)}
    assert {name: count for name, count in methods.items() if count > MOST_METHODS} == {}


def test_classes_do_not_pile_up():
    assert {name: depth for name, depth in depth_of_classes().items() if depth > DEEPEST_CLASS} == {}


def test_module_names_say_what_is_inside():
    parts = {file: {PurePosixPath(part).stem for part in PurePosixPath(file).parts} for file in trees()}
    assert [file for file, names in parts.items() if names & SAYS_NOTHING] == []


def test_errors_are_raised_and_not_asserted():
    assert [f"{file}:{node.lineno}" for file, node in nodes(ast.Assert)] == []


def test_one_place_knows_transformers():
    found = {file for file, tree in trees().items() for name in imported(tree) if name.split(".")[0] == "transformers"}
    assert [file for file in sorted(found) if not file.startswith(KNOWS_TRANSFORMERS)] == []


def test_the_bundled_model_is_loaded_like_any_other():
    imports = {name.split(".")[0] for name in imported(trees()["attnprobe/models/bundled/__init__.py"])}
    assert imports.isdisjoint({"transformers", "tokenizers"})


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()
