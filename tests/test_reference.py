"""The back matter: the reference lists the public names with their docstrings, and the bibliography what is cited."""

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
site_reference = importlib.import_module("site_reference")

PAGE = (ROOT / "book" / "reference.md").read_text()
LISTED = {module: options.split() for module, options in re.findall(
    r"^```\{reference\} (\S+)\n(?::names: (.*)\n)?```$", PAGE, flags=re.M)}
NAMES = [(module, name) for module, names in LISTED.items()
         for name in names or site_reference.public_names(site_reference.tree_of(ROOT, module)[0])]
HTML = ROOT / "_build" / "html" / "book"

# What the course's public contract names, by module.
CONTRACT = {
    "config": "GPTConfig", "tokenizer": "Tokenizer", "model": "init_params forward rope", "sampling": "greedy sample",
    "generate": "generate_full_prefix generate_cached prefill decode_one_token", "cache": "KVCache",
    "memory": "kv_cache_bytes KVShape format_bytes",
    "quantize": "quantize dequantize pack_int4 unpack_int4 quantize_groups symmetric_scale affine_params quantize_affine "
                "dequantize_affine error_split quantize_params",
    "timing": "RequestTrace summarize load_traces Report", "cost": "prefill_cost decode_cost",
    "scheduler": "Request Scheduler simulate Timeline", "blocks": "BlockPool PagedKVCache paged_attention",
    "prefix": "PrefixCache", "speculative": "verify exact_distribution speculative_generate",
    "checkpoint": "load_mg2 load_hf", "policy": "questions", "policy_eval": "evaluate",
    "quantized_cache": "QuantizedKVCache calibrate_scales", "validity": "longest_common_prefix fingerprint",
}


def test_the_contract_s_names_are_on_the_page():
    wanted = {(f"mgpt.{module}", name) for module, names in CONTRACT.items() for name in names.split()}
    assert wanted - set(NAMES) == set()


@pytest.mark.parametrize("module, name", NAMES, ids=[f"{module}.{name}" for module, name in NAMES])
def test_an_entry_says_what_the_object_says(module, name):
    node, _path = site_reference.definition(ROOT, module, name)
    found = getattr(importlib.import_module(module), name)
    assert inspect.cleandoc(found.__doc__) == ast.get_docstring(node) and name[0] != "_"
    tree, _file = site_reference.tree_of(ROOT, module)
    given = [re.split("[=:]", part)[0] for part in site_reference.parameters(node, tree) if part not in "*/"]
    if inspect.isfunction(found) or "__init__" in vars(found):  # an exception has no parameters of its own
        expected = [p.name for p in inspect.signature(found).parameters.values() if p.name not in ("args", "kwargs")]
        assert given == [name for name in expected if name[0] != "_"]


def test_no_private_name_is_listed_and_every_entry_is_in_the_built_page():
    built = (HTML / "reference.html").read_text()
    anchors = re.findall(r'<dt class="sig sig-object[^>]*id="([^"]+)"', built)
    assert {f"{module}.{name}" for module, name in NAMES} <= set(anchors)
    assert not [anchor for anchor in anchors if re.search(r"\._", anchor)]
    assert len(set(anchors)) == len(anchors)
    assert "mgpt.cache.KVCache.truncate" in anchors and "max|x| · i/200" in built


def parts(text):
    return [(type(node).__name__, node.astext()) for node in site_reference.set_text(text)]


def test_a_docstring_is_set_as_it_stands():
    assert parts("Bytes of `x`, max|x| * 2.  One\nsentence more.\n\na  first\nb  second") == [
        ("paragraph", "Bytes of x, max|x| * 2. One sentence more."), ("literal_block", "a  first\nb  second")]
    assert [type(node).__name__ for node in site_reference.set_text("of `x`, y")[0].children] == ["Text", "literal", "Text"]


@pytest.mark.parametrize("source, names", [
    ("def a(): pass\ndef _b(): pass\nclass C: pass\nD = 1", ["a", "C"]),
    ("__all__ = ['Cache', 'LIMIT', 'a']\ndef a(): pass\ndef b(): pass", ["Cache", "a"]),
])
def test_public_names_are_all_or_those_without_underscore(source, names):
    assert site_reference.public_names(ast.parse(source)) == names


@pytest.mark.parametrize("source, shown", [
    ("def f(a, b: int, *, c=np.float64, d=(1, 2)): pass", ["a", "b", "*", "c=np.float64", "d=(1, 2)"]),
    ("class C:\n    def __init__(self, x, y='row'): pass", ["x", "y='row'"]),
    ("@dataclass(frozen=True)\nclass D:\n    a: int\n    b: dict = field(default_factory=dict)\n    _c: int = 0",
     ["a", "b=…"]),
    ("class E(Exception):\n    pass", []), ("@property\ndef p(self): pass", None),
])
def test_parameters_are_shown_without_types_and_without_self(source, shown):
    assert site_reference.parameters(ast.parse(source).body[0]) == shown


# ------------------------------------------------------------------ bibliography
BIB = (ROOT / "book" / "references.bib").read_text()


def works():
    """{(first author's family name, year): key}"""
    entries = re.findall(r"@\w+\{(\w+),\n\s+author\s*= \{([^,]+),.*?year\s*= \{(\d{4})\}", BIB, flags=re.S)
    return {(author, year): key for key, author, year in entries}


def cited():
    """(first author, year) of every citation in docstrings and in prose."""
    files = [*(ROOT / "mgpt").rglob("*.py"), *(ROOT / "book").glob("*.md")]
    pattern = r"([A-Z][a-z]+)(?: et al\.| and [A-Z][a-z]+|)[ ,]+\(?((?:19|20)\d\d)\b"
    return {(author, year) for path in files for author, year in re.findall(pattern, path.read_text())
            if author in {name for name, _ in works()} or "et al. " + year in path.read_text()}


def test_every_citation_has_its_entry_and_every_entry_is_taken_from():
    assert len(works()) == BIB.count("\n@") >= 10
    assert cited() - set(works()) == set()
    page = (ROOT / "book" / "bibliography.md").read_text()
    assert sorted(re.findall(r"\{cite:t\}`(\w+)`", page)) == sorted(works().values())


def test_the_built_bibliography_lists_every_work_once_with_its_address():
    page = (HTML / "bibliography.html").read_text()
    assert page.count('class="citation"') == len(works())
    for address in re.findall(r"url\s*= \{([^}]+)\}", BIB):
        assert f'href="{address}"' in page, address
